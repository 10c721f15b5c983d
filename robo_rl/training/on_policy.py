"""The on-policy training loop: act in several environments at once, learn from the rollout, discard it.

Resuming is exact if the environments can save their state, else warm: then every environment begins a new episode, and a
rollout under way is dropped. With rewards that do not repeat themselves it is warm, too, though nothing is cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import override

from robo_rl.environments.curriculum import curriculum_of, curriculum_state, load_curriculum_state
from robo_rl.environments.vector import SequentialEnvironments, metrics_of
from robo_rl.errors import InvalidEpisode, InvalidSetting
from robo_rl.protocols.components import Policy, Stateful, TrainingObserver, VectorFactory
from robo_rl.protocols.rewards import DelayedRewards, OnlineRewards
from robo_rl.spec.cost import PLAIN, CostSpec, cost_names
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.delayed_rewards import require_unchanging
from robo_rl.training.episode_reports import require_few_diverged
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import DIVERGED, Array, Episode, Labels, Metrics, StateDict, StepRewards

Environments = VectorEnv[Any, Any, Any]
FEWEST = 2  # steps of a training: a rollout of one row has no deviation to normalise by


@dataclass(frozen=True)
class VectorStep:
    """One step of N environments; after the end of an episode `observations` already has the first of the next one."""

    observations: Mapping[str, Array]
    """name -> (N, ...)"""
    rewards: npt.NDArray[Any] | None
    """(N,); None if those of a model come when the rollout is full"""
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    final_observations: Mapping[str, Array]
    """name -> (K, ...): the last ones of the K episodes that were cut, in the order of the environments; empty for none"""
    costs: npt.NDArray[np.float64] | None = None
    """(N, C) constraint costs in the order of `cost_names`, if the environments have them."""


def costs_in(infos: Mapping[str, Any], names: Sequence[str], count: int) -> npt.NDArray[np.float64]:
    """Return the constraint costs (N, C) of a step of N environments; raises InvalidSetting if one is missing."""
    costs, found = np.zeros((count, len(names))), np.zeros((count, len(names)), np.bool_)
    for source in (infos, infos.get("final_info", {})):
        values = source.get("costs", {PLAIN: source[PLAIN], f"_{PLAIN}": source[f"_{PLAIN}"]} if PLAIN in source else {})
        for column, name in enumerate(names):
            if name in values:
                mask = values[f"_{name}"]
                costs[mask, column], found[mask, column] = values[name][mask], True
    if not found.all():
        raise InvalidSetting(
            "The learner needs constraint costs of each step, and a step has not all of them.",
            got=f"infos with {', '.join(sorted(key for key in infos if not key.startswith('_'))) or 'no entries'}",
            allowed=f'info["costs"] with {", ".join(names)}',
            fix="take an environment with costs (docs/constraints.md), or another learner",
        )
    if not (np.isfinite(costs) & (costs >= 0)).all():
        raise InvalidEpisode("A step has a cost that is none.", got=costs.tolist(), allowed="finite numbers, 0 or more")
    return costs


class OnPolicyLearner(Stateful, Protocol):
    """Acts in all environments, stores the rollout, and learns from that alone."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    @property
    def is_ready(self) -> bool:
        """True once the rollout is full."""

    def begin(self, observations: Mapping[str, Array]) -> None:
        """All environments begin an episode; an unfinished rollout is forgotten."""

    def act(self) -> Array:
        """Returns actions (N, ...) for the newest observations."""

    def observe(self, step: VectorStep) -> None:
        """Stores the outcome of the actions."""

    def reward(self, rewards: StepRewards) -> None:
        """Take in the rewards of the T N steps of a rollout that came without, step after step."""

    def update(self) -> Metrics:
        """Learns from the rollout, full or not, and begins the next one."""


class OnPolicyConfig(ABC):
    """Settings of an on-policy learner; brings its training loop (SelfTrainedConfig)."""

    num_envs: int
    """Environments that step together."""
    steps_per_env: int
    """Steps of each environment between two updates."""
    discount: float
    """Weight of a reward one step later."""
    gae_lambda: float
    """Weight of the advantage estimate that looks one step further."""
    normalize_observations: bool
    """Scale observations by running moments."""
    normalize_rewards: bool
    """Divide rewards by the running deviation of the return."""

    @property
    def rollout_size(self) -> int:
        """Transitions between two updates."""
        return self.num_envs * self.steps_per_env

    @abstractmethod
    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> OnPolicyLearner:
        """Return a fresh learner for a training of `steps` environment steps; 0 if that is not known."""

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        reward: OnlineRewards | None = None,
    ) -> OnPolicyTraining:
        """Return a training at step 0; raises InvalidSetting if there is data of another policy, which is of no use."""
        if demonstrations:
            raise InvalidSetting(
                "An on-policy learner learns from its own actions alone.",
                got=f"{len(demonstrations)} demonstrations",
                fix="leave them out, or use rlpd, bc, or sb3-ppo with clone_epochs",
            )
        environments, spec = make_vector(environment_factory, self.num_envs)
        learner = self.build(spec if reward is None else reward.visible(spec), seed, steps=steps)
        rewards = None if reward is None else reward.running(self.num_envs)
        return OnPolicyTraining(environments, learner, steps=steps, seed=seed, rewards=rewards)

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> Policy:
        """Return the policy of a saved training."""
        environment = environment_factory()
        learner = self.build(specification(environment), seed)
        environment.close()
        learner.load_state_dict(state["learner"])
        return learner.policy


def require_steps(steps: int, environments: int) -> None:
    """Raise InvalidSetting if a training, unless it has no steps, is shorter than one step of all environments."""
    if 0 < steps < max(environments, FEWEST):
        raise InvalidSetting(
            "The training is shorter than one step of all environments.",
            got=f"{steps} steps, {environments} environments",
            allowed=f"{max(environments, FEWEST)} steps or more",
            fix="more --steps, or fewer --learner.num-envs with a --learner.batch-size that divides their rollout",
        )


def make_vector(factory: Callable[[], gymnasium.Env[Any, Any]], num_envs: int) -> tuple[Environments, EnvironmentSpec]:
    """Returns the environments of a VectorFactory, or those of a plain factory one after the other, and their spec."""
    if not isinstance(factory, VectorFactory):
        sequential = SequentialEnvironments(factory, num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        return sequential, sequential.environment_spec
    environments = factory.make_vector(num_envs)
    spec = environments.environment_spec  # type: ignore[attr-defined]  # not one of Gymnasium's attributes
    return environments, spec


class OnPolicyTraining(Stateful):
    """On-policy training in this process; never takes more than `steps`, counted over all environments.

    The last rollout has the remaining steps; fewer steps than there are environments are left over.
    With `rewards` of a model the learner never sees those of the environments, which are only reported.
    """

    def __init__(
        self,
        environments: Environments,
        learner: OnPolicyLearner,
        *,
        steps: int,
        seed: int,
        rewards: DelayedRewards | None = None,
    ) -> None:
        require_steps(steps, environments.num_envs)
        if rewards is not None:
            require_unchanging(rewards)
        self.environments, self.learner = environments, learner
        self.steps, self.seed = steps, seed
        self.stopwatch = Stopwatch()
        self.step = 0
        """Environment steps, over all environments."""
        self.resumed: str | None = None
        """"exact" or "warm" after `load_state_dict`."""
        spec = getattr(environments, "environment_spec", None)
        self._declared: tuple[CostSpec, ...] = spec.costs if spec else ()
        self._cost_names = cost_names(self._declared)
        self._episodes = RunningEpisodes(environments.num_envs, self._cost_names)
        self._is_under_way = False
        self._curriculum = curriculum_of(environments)
        self._rollout = None if rewards is None else UnrewardedRollout(rewards, learner.policy.environment_spec.instruction)

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Trains from the present step to the last full step of all environments."""
        time = self.stopwatch.time
        self.stopwatch.start()
        if not self._is_under_way and self._has_steps_left:
            time("simulate", self._begin)
        while self._has_steps_left:
            actions = time("infer", self.learner.act)
            outcome = time("simulate", partial(self.environments.step, actions))
            self.step += self.environments.num_envs
            time("infer", partial(self._observe, actions, outcome, observer))
            if self.learner.is_ready or not self._has_steps_left:
                if self._rollout is not None:
                    self.learner.reward(self._rollout.rewards())
                metrics = time("update", self.learner.update)
                metrics |= {} if self._rollout is None else self._rollout.metrics
                metrics |= {} if self._curriculum is None else self._curriculum.curriculum_metrics
                metrics |= metrics_of(self.environments)
                time("log", partial(observer.on_metrics, self.step, metrics))
            time("log", partial(observer.on_step, self.step, self))

    @property
    def _has_steps_left(self) -> bool:
        return self.steps - self.step >= self.environments.num_envs

    def _begin(self) -> None:
        count = self.environments.num_envs
        # the step stands for the episodes before it, so that those of a warm resume are new ones
        seeds = [episode_seed(self.seed, self.step + index) for index in range(count)]
        observations, infos = self.environments.reset(seed=seeds)  # type: ignore[arg-type]  # Gymnasium's own take a list
        self.learner.begin(observations)
        if self._rollout is not None:
            self._rollout.restart(observations, infos, count)
        self._episodes.restart()
        self._is_under_way = True

    def _observe(self, actions: Array, outcome: tuple[Any, ...], observer: TrainingObserver) -> None:
        observations, rewards, terminated, truncated, infos = outcome
        cut = np.flatnonzero(truncated & ~terminated)
        finals = [infos["final_obs"][index] for index in cut]
        final_observations = {name: np.stack([final[name] for final in finals]) for name in observations} if finals else {}
        given, costs = rewards, None
        if self._declared or PLAIN in infos or PLAIN in infos.get("final_info", {}):
            costs = costs_in(infos, self._cost_names, len(rewards))
        if self._rollout is not None:
            given = None
            self._rollout.add(actions, outcome)
        self.learner.observe(VectorStep(observations, given, terminated, truncated, final_observations, costs))
        self._episodes.add(rewards, infos, costs)
        for index in np.flatnonzero(terminated | truncated):
            self._episodes.finish(int(index), bool(terminated[index]), infos["final_info"], self.step, observer)

    @override
    def state_dict(self) -> StateDict:
        environments = self.environments.state_dict() if isinstance(self.environments, Stateful) else None
        training = {"step": self.step, "episodes": self._episodes.state_dict(), "seconds": self.stopwatch.state_dict()}
        training |= {"curriculum": curriculum_state(self.environments)}
        state = {"learner": self.learner.state_dict(), "training": training, "environments": {"state": environments}}
        return state if self._rollout is None else state | {"rewards": self._rollout.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a training; `resumed` is "exact" if its environments continue as they were."""
        training, environments = state["training"], state["environments"]["state"]
        self.learner.load_state_dict(state["learner"])
        self._episodes.load_state_dict(training["episodes"])
        self.step = int(training["step"])
        self.stopwatch.load_state_dict(training["seconds"])
        load_curriculum_state(self.environments, training.get("curriculum", {}))
        self.resumed, self._is_under_way = "warm", False
        if environments is not None and isinstance(self.environments, Stateful):
            self.environments.load_state_dict(environments)
            repeats = self._rollout is None or self._rollout.repeats_itself
            self.resumed, self._is_under_way = "exact" if repeats else "warm", True
        if self._rollout is not None:
            self._rollout.load_state_dict(state["rewards"])


class UnrewardedRollout(Stateful):
    """Steps of a rollout whose rewards come from a model, as soon as enough of them wait."""

    def __init__(self, rewards: DelayedRewards, instruction: str | None) -> None:
        self._rewards, self._instruction = rewards, instruction
        self._scored: list[StepRewards] = []

    @property
    def repeats_itself(self) -> bool:
        """True if the same steps would get the same rewards again."""
        return self._rewards.repeats_itself

    @property
    def metrics(self) -> Metrics:
        """Scalars that the reward model reports."""
        return self._rewards.metrics

    def restart(self, observations: Mapping[str, Array], infos: Mapping[str, Any], count: int) -> None:
        """All environments begin an episode; an unfinished rollout is forgotten."""
        self._rewards.restart()
        self._scored = []
        for index in range(count):
            self._begin(index, observations, infos)

    def add(self, actions: Array, outcome: tuple[Any, ...]) -> None:
        """Shows the model a step of all environments and its outcome, as the environments returned it."""
        observations, rewards, terminated, truncated, infos = outcome
        ended = np.flatnonzero(terminated | truncated).tolist()
        seen = observations if not ended else {name: values.copy() for name, values in observations.items()}
        for index in ended:
            for name, values in seen.items():
                values[index] = infos["final_obs"][index][name]
        self._rewards.add_all(seen, actions=actions, rewards=rewards, terminated=terminated, truncated=truncated & ~terminated)
        for index in ended:
            self._begin(index, observations, infos)
        if self._rewards.is_due:
            self._scored.append(self._rewards.score())

    def rewards(self) -> StepRewards:
        """Return the rewards of the T N steps of the rollout, step after step; the next one begins."""
        parts, self._scored = [*self._scored, self._rewards.score()], []
        return _join(parts)

    def _begin(self, index: int, observations: Mapping[str, Array], infos: Mapping[str, Any]) -> None:
        instruction = infos["instruction"][index] if "instruction" in infos else None
        observation = {name: values[index] for name, values in observations.items()}
        self._rewards.begin(index, observation, instruction or self._instruction)

    @override
    def state_dict(self) -> StateDict:
        scored = _join(self._scored)
        arrays = {"values": scored.labels.values, "valid": scored.labels.valid, "ends": scored.ends}
        return {"scored": arrays, "waiting": self._rewards.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the state returned by `state_dict`; `restart` forgets the rollout if the environments begin new episodes."""
        scored = state["scored"]
        self._scored = [StepRewards(Labels(scored["values"], scored["valid"]), scored["ends"])]
        self._rewards.load_state_dict(state["waiting"])


def _join(parts: Sequence[StepRewards]) -> StepRewards:
    ends = [np.zeros(0, np.bool_), *(part.ends for part in parts)]
    return StepRewards(Labels.joined([Labels.missing(0), *(part.labels for part in parts)]), np.concatenate(ends))


class RunningEpisodes(Stateful):
    """Return, length and success of the episode that runs in each of N environments."""

    def __init__(self, environments: int, costs: Sequence[str] = ()) -> None:
        """costs: names of the constraint costs."""
        self._returns = np.zeros(environments)
        self._costs = np.zeros((environments, len(costs)))
        self._cost_names, self._has_costs = tuple(costs), 0
        self._lengths = np.zeros(environments, np.int64)
        self._knows_success = np.zeros(environments, np.bool_)
        self._successes = np.zeros(environments, np.bool_)
        self._finished = self._diverged = 0

    def restart(self) -> None:
        """All environments begin an episode."""
        for running in (self._returns, self._costs, self._lengths, self._knows_success, self._successes):
            running[:] = 0

    def add(self, rewards: Array, infos: Mapping[str, Any], costs: Array | None = None) -> None:
        """Counts one step of each; costs: (N, C)."""
        self._returns += rewards
        if costs is not None:
            self._costs += costs
            self._has_costs = 1
        self._lengths += 1
        for source in (infos, infos.get("final_info", {})):
            if "success" in source:
                self._knows_success |= source["_success"]
                self._successes |= source["_success"] & source["success"].astype(np.bool_)

    def finish(self, index: int, terminated: bool, infos: Mapping[str, Any], step: int, observer: TrainingObserver) -> None:
        """Reports the episode that ended in environment `index`; raises SimulationFailed when too many diverged."""
        success = bool(self._successes[index]) if self._knows_success[index] else None
        reason = _reason(index, terminated, success, infos)
        self._finished += 1
        self._diverged += reason == DIVERGED
        observer.on_episode(
            step,
            episode_return=float(self._returns[index]),
            length=int(self._lengths[index]),
            success=success,
            stop_reason=reason,
            costs=dict(zip(self._cost_names, self._costs[index].tolist(), strict=True)) if self._has_costs else {},
            place=(index, len(self._returns)),
        )
        self._returns[index], self._costs[index], self._lengths[index] = 0.0, 0.0, 0
        self._knows_success[index] = self._successes[index] = False
        require_few_diverged(self._diverged, self._finished, step)

    @override
    def state_dict(self) -> StateDict:
        return {name: np.array(value) for name, value in vars(self).items() if name != "_cost_names"}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name, value in vars(self).items():
            if name in state:  # states of before costs have none
                setattr(self, name, int(state[name]) if isinstance(value, int) else np.array(state[name]))


def _reason(index: int, terminated: bool, success: bool | None, infos: Mapping[str, Any]) -> str:
    """Returns the reason for the end as `Rollout.stop_reason` does: the environment's own, else derived from the flags."""
    if infos.get("_stop_reason", np.zeros(index + 1))[index]:
        return str(infos["stop_reason"][index])
    if not terminated:
        return "time_limit"
    return "unknown" if success is None else "goal" if success else "failure"
