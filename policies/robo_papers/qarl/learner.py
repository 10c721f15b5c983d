"""Two soft actor-critics against each other: the robot's policy, and an adversary that pushes bodies, paid the opposite.

Pinto, Davidson, Sukthankar and Gupta 2017, "Robust Adversarial Reinforcement Learning", arXiv:1703.02702, algorithm 1, with SAC
in place of TRPO; and with an adversary of bounded rationality, Reddi, Tölle, Peters, Chalvatzaki and D'Eramo 2024, "Robust
Adversarial Reinforcement Learning via Bounded Rationality Curricula", arXiv:2311.01642. Both observe the episode's temperature
alpha, relative to that at the start. B rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_papers.qarl.curricula import CurriculumSettings
from robo_papers.qarl.forces import Forces
from robo_policies.export.acting import ActingNetwork, WithConstant, acting_network
from robo_policies.learners.own_loop import OwnLoop
from robo_policies.learners.parts import ActorPolicy
from robo_policies.learners.sac import SAC, Objective, SACSettings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.extras import Column
from robo_rl.protocols.components import Policy, Stateful
from robo_rl.protocols.contract import OWN, Feature, Needs
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.training.episode_loop import EpisodeLoop
from robo_rl.types import DIVERGED, Array, Episode, Metrics, StateDict, Transition

TEMPERATURE = "adversary_temperature"
"""Name of the observation entry: temperature alpha of the episode, divided by that at the start."""


@dataclass(frozen=True)
class AdversarySettings:
    """Settings group `adversary`: its force, the bodies and axes that it pushes, and how long it learns at a time."""

    force: float = 1.0
    """[N] largest force along each axis of each body; 0 for plain SAC, without the temperature in the observation."""
    bodies: tuple[str, ...] = ()
    """Names of the bodies of the MuJoCo model that are pushed; by default the first that moves."""
    axes: str = "xz"
    """Axes of the world along which they are pushed."""
    phase: int = 10
    """Number of episodes for which the adversary learns, after those of the policy."""

    def __post_init__(self) -> None:
        allowed = {"force": (0.0 <= self.force < np.inf, "0 or more"), "phase": (self.phase >= 1, "1 or more")}
        require_allowed(self, allowed, group="adversary")


@dataclass(frozen=True)
class QARLConfig(SACSettings, CurriculumSettings, OwnLoop):
    """Settings of QARL and RARL: SAC against an adversary that pushes (Pinto et al. 2017, Reddi et al. 2024).

    Its own fields set the adversary, its curriculum and the phases. The fields of SAC hold for both agents.
    """

    needs = Needs((OWN,), frozenset({Feature.CONTINUOUS}), {Feature.REWARD: "leave reward out", Feature.DEMONSTRATIONS: "none"})

    adversary: AdversarySettings = AdversarySettings()
    """The adversary: force, bodies, phase."""
    phase: int = 10
    """Number of episodes for which the policy learns, before the adversary's turn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        CurriculumSettings.__post_init__(self)
        require_allowed(self, {"phase": (self.phase >= 1, "1 or more")})

    def observed(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec in which the policy learns: with the temperature, unless the adversary has no force."""
        return with_temperature(spec) if self.adversary.force > 0 else spec

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        return SAC(spec, self, seed)

    @override
    def loop(self) -> type[AdversarialTraining]:
        return AdversarialTraining

    @override
    def policy_of(self, spec: EnvironmentSpec, seed: int, state: StateDict) -> Policy:
        learner, curriculum = self.build(self.observed(spec), seed), self.build_curriculum()
        learner.load_state_dict(state["learner"])
        curriculum.load_state_dict(state["training"]["curriculum"])
        return PlainPolicy(spec, learner.policy, curriculum.mean / self.first_temperature)


class RowTemperatures(Objective):
    """Objective of SAC in which each row has the temperature of its episode, in place of a learnt one (Reddi et al., eq. 4)."""

    @override
    def entropy_weight(self, alpha: Tensor, data: TensorBatch) -> Tensor:
        return data.extras["alpha"]


class PlainPolicy(Stateful):
    """The trained robot's policy in the plain environment, in which no temperature is observed.

    It is asked for the mean temperature of the curriculum, as in the authors' evaluations. A lower one, which the curriculum
    has not reached, would be an input far from all that the policy has learnt from.
    """

    def __init__(self, spec: EnvironmentSpec, policy: ActorPolicy, temperature: float) -> None:
        """temperature: relative to that at the start."""
        self.environment_spec, self._policy = spec, policy
        self.ask_for(temperature)

    def ask_for(self, temperature: float) -> None:
        """Let the policy act as against an adversary of this temperature, given as a fraction of the first temperature."""
        self.temperature = np.full(1, temperature, np.float32)

    def reset(self) -> None:
        """Do nothing: there is no memory of earlier steps."""

    def acting_network(self) -> ActingNetwork:
        """Return the policy's network for an export, with the temperature as a constant inside."""
        acting = acting_network(self._policy)
        return replace(acting, network=WithConstant(acting.network, TEMPERATURE, torch.from_numpy(self.temperature.copy())))

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the policy's action (A,) for an observation without temperature."""
        return self._policy.act({**observation, TEMPERATURE: self.temperature}, deterministic=deterministic)

    @override
    def state_dict(self) -> StateDict:
        return {"policy": self._policy.state_dict(), "temperature": self.temperature.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._policy.load_state_dict(state["policy"])
        self.temperature = np.asarray(state["temperature"], np.float32)


class Opponents:
    """The robot's policy in an episode with an adversary: it also applies the adversary's force before each step."""

    def __init__(self, training: AdversarialTraining, temperature: Array) -> None:
        """temperature: (1,) of the adversary, relative to its mean at the start."""
        self.environment_spec = training.environment_spec
        self.temperature = temperature
        self.force: Array = np.zeros(0, np.float32)
        """Newest action of the adversary, shares of the limit."""
        self._training = training

    def reset(self) -> None:
        """Do nothing: there is no memory of earlier steps."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Apply the adversary's force, and return the robot's action (A,)."""
        action, self.force = self._training.actions({**observation, TEMPERATURE: self.temperature})
        self._training.forces.push(self._training.curriculum.force * self.force)
        return action


class AdversarialTraining(EpisodeLoop):
    """Training loop of QARL: episodes with robot and adversary, from which one of them learns at a time."""

    def __init__(self, environment: gymnasium.Env[Any, Any], config: QARLConfig, *, steps: int, seed: int) -> None:
        super().__init__(environment, steps=steps, seed=seed)
        self.config = config
        self.forces = Forces(environment, config.adversary.bodies, config.adversary.axes, config.adversary.force)
        self.curriculum = config.build_curriculum()
        spec, words = config.observed(self.environment_spec), np.random.SeedSequence(seed).spawn(2)
        opposed = replace(with_temperature(self.environment_spec), action=self.forces.action)
        self.learner = SAC(spec, config, seed)
        self.adversary = SAC(opposed, config, int(words[0].generate_state(1)[0] >> 1), RowTemperatures())
        self.replay = ReplayBuffer(spec, config.replay.capacity, seed)
        self.opposed_replay = ReplayBuffer(opposed, config.replay.capacity, seed + 1, extras=(Column("alpha"),))
        self._random, self._explorer = np.random.default_rng(words[1]), RandomPolicy(spec, seed)
        temperature = self.curriculum.mean / config.first_temperature
        self._plain = PlainPolicy(self.environment_spec, self.learner.policy, temperature)
        self._alpha, self._opponents = 0.0, Opponents(self, np.zeros(1, np.float32))

    @property
    @override
    def policy(self) -> PlainPolicy:
        """The robot's policy, for the plain environment."""
        return self._plain

    @property
    def adversary_learns(self) -> bool:
        """True in the phases in which the adversary learns; without force there are none."""
        config = self.config
        return config.adversary.force > 0 and self.episodes % (config.phase + config.adversary.phase) >= config.phase

    @override
    def choose(self) -> Opponents:
        self._alpha = self.curriculum.draw(self._random)
        self._opponents = Opponents(self, np.full(1, self._alpha / self.config.first_temperature, np.float32))
        return self._opponents

    @override
    def begin(self, observation: Observation) -> None:
        for replay in (self.replay, self.opposed_replay):
            replay.begin(self._with_temperature(observation))

    @override
    def see(self, transition: Transition) -> Metrics:
        if transition.info.get("stop_reason") == DIVERGED:  # such a step teaches nothing
            self.replay.cut()
            self.opposed_replay.cut()
        else:
            before, after = map(self._with_temperature, (transition.observation, transition.next_observation))
            step = replace(transition, observation=before, next_observation=after, info={"alpha": self._alpha})
            force = self._opponents.force
            self.replay.add(step)
            self.opposed_replay.add(replace(step, action=force, policy_action=force, reward=-step.reward))
        return self.stopwatch.time("update", self._learn)

    @override
    def finish(self, episode: Episode) -> Metrics:
        metrics = self.curriculum.finish(self._alpha, episode.undiscounted_return, self.step / self.steps)
        self._plain.ask_for(self.curriculum.mean / self.config.first_temperature)
        return metrics

    def actions(self, observation: Observation) -> tuple[Array, Array]:
        """Return the actions of robot and adversary; both are random before learning starts."""
        if self.step < self.config.replay.learning_starts:
            force = self._random.uniform(-1.0, 1.0, self.forces.action.size).astype(np.float32)
            return self._explorer.act(observation), force
        return self.learner.policy.act(observation), self.adversary.policy.act(observation)

    def _with_temperature(self, observation: Observation) -> Observation:
        return {**observation, TEMPERATURE: self._opponents.temperature}

    def _learn(self) -> Metrics:
        config = self.config
        if self.step < config.replay.learning_starts or not len(self.replay):
            return {}
        if self.adversary_learns:
            found = self.adversary.update(self.opposed_replay.sample(config.batch_size, 1, config.discount))
            return {tag.replace("train/", "adversary/"): value for tag, value in found.items()}
        return self.learner.update(self.replay.sample(config.batch_size, config.replay.n_step, config.discount))

    @override
    def state_dict(self) -> StateDict:
        """Return both learners, their memories, the curriculum and the counters."""
        parts = ("learner", "adversary", "replay", "opposed_replay")
        own = {
            "curriculum": self.curriculum.state_dict(),
            "random": self._random.bit_generator.state,
            "explorer": self._explorer.state_dict(),
        }
        return {part: getattr(self, part).state_dict() for part in parts} | {"training": self.counters() | own}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the next episode is a new one."""
        for part in ("learner", "adversary", "replay", "opposed_replay"):
            getattr(self, part).load_state_dict(state[part])
        training = state["training"]
        self.load_counters(training)
        self.curriculum.load_state_dict(training["curriculum"])
        self._random.bit_generator.state = training["random"]
        self._explorer.load_state_dict(training["explorer"])
        self._plain.ask_for(self.curriculum.mean / self.config.first_temperature)


def with_temperature(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return the spec of an environment in which the temperature is observed."""
    entry = ArraySpec(TEMPERATURE, (1,), meaning="temperature of the adversary, relative to its mean at the start")
    return replace(spec, observation=ObservationSpec((*spec.observation.arrays, entry)))
