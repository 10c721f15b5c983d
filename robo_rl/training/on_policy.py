"""On-policy training loop: act in several environments at once, learn from the rollout (T steps of each), discard it.

A resume is exact if the environments can save their state. Otherwise it is warm: every environment begins a new episode, and an
unfinished rollout is dropped. With rewards that may differ the next time the resume is warm, too, but nothing is dropped.
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
from typing_extensions import override

from robo_rl.environments.lasting import environment_metrics, lasting_state, load_lasting_state
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy, Stateful, TrainingObserver
from robo_rl.protocols.rewards import DelayedRewards, OnlineRewards
from robo_rl.rollout.vector import Environments, VectorRollout
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.training.delayed_rewards import require_unchanging
from robo_rl.training.episode_reports import Progress
from robo_rl.training.step_sources import episode_seed
from robo_rl.training.vector_steps import make_vector, require_steps
from robo_rl.types import Array, Episode, Labels, Metrics, StateDict, StepRewards, VectorTransition


@dataclass(frozen=True)
class VectorStep:
    """One step of N environments as an on-policy learner gets it."""

    observations: Mapping[str, Array]
    """name -> (N, ...) observations after the step; for an episode that ended, the first observation of the next episode"""
    rewards: npt.NDArray[Any] | None
    """(N,); None if the rewards come from a model once the rollout is full"""
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    final_observations: Mapping[str, Array]
    """name -> (K, ...): the last observations of the K episodes that were cut, in the order of the environments; empty if K is
    0"""
    costs: npt.NDArray[np.float64] | None = None
    """(N, C) constraint costs in the order of `cost_names`; None if there are none."""


class OnPolicyLearner(Stateful, Protocol):
    """Interface of a learner that acts in N environments, stores the rollout, and learns only from that rollout."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    @property
    def is_ready(self) -> bool:
        """True once the rollout has its full length."""

    def begin(self, observations: Mapping[str, Array]) -> None:
        """Begin an episode in every environment with these first observations, name -> (N, ...).

        An unfinished rollout is discarded.
        """

    def act(self) -> Array:
        """Return actions (N, A) or (N,) for the newest observations."""

    def observe(self, step: VectorStep) -> None:
        """Store the outcome of the newest actions."""

    def reward(self, rewards: StepRewards) -> None:
        """Store the rewards of a rollout whose steps came without rewards: T N labels, ordered by step, then by environment."""

    def update(self) -> Metrics:
        """Learn from the rollout, which may be shorter than its full length, and begin the next one.

        Returns metrics for the log.
        """


@dataclass(frozen=True)
class Normalization:
    """Settings group `normalize` of on-policy learners: whether observations and rewards are standardised."""

    observations: bool = True
    """True to scale observations by running mean and deviation. Off in Stable-Baselines3; its settings tuned for MuJoCo have it
    on."""
    rewards: bool = True
    """True to divide rewards by the running deviation of the discounted return. Off in Stable-Baselines3; its settings tuned
    for MuJoCo have it on."""


class OnPolicyConfig(ABC):
    """Base class of settings of on-policy learners, such as PPO; they bring their own training loop (SelfTrainedConfig).

    The fields set the number of environments, the length of a rollout, the discount and the advantages.
    """

    num_envs: int
    """Number of environments that step together."""
    steps_per_env: int
    """Steps of each environment between two updates."""
    discount: float
    """Discount per step, 0 to 1."""
    gae_lambda: float
    """Lambda of generalised advantage estimation, 0 to 1."""
    normalize: Normalization
    """What is standardised: observations and rewards."""

    @property
    def rollout_size(self) -> int:
        """Transitions between two updates: num_envs * steps_per_env."""
        return self.num_envs * self.steps_per_env

    @abstractmethod
    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> OnPolicyLearner:
        """Build an untrained learner for a training of `steps` environment steps; 0 if that number is unknown."""

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        reward: OnlineRewards | None = None,
    ) -> OnPolicyTraining:
        """Make the training loop with an untrained learner, at step 0.

        Raises InvalidSetting if there are demonstrations, which on-policy learners cannot use.
        """
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


class OnPolicyTraining(Progress, Stateful):
    """On-policy training loop in this process, for at most `steps` environment steps, summed over all environments.

    The last rollout has the remaining steps; a remainder smaller than the number of environments is not used. With `rewards` of
    a model the learner never sees the environments' own rewards, which are only reported.
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
        super().__init__(steps=steps)
        self.environments, self.learner, self.seed = environments, learner, seed
        self._playing = VectorRollout(environments)
        self._rollout = None if rewards is None else UnrewardedRollout(rewards, learner.policy.environment_spec.instruction)

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last full step of all environments."""
        time = self.stopwatch.time
        self.stopwatch.start()
        if not self._playing.is_under_way and self._has_steps_left:
            time("simulate", self._begin)
        while self._has_steps_left:
            actions = time("infer", self.learner.act)
            steps = time("simulate", partial(self._playing.step, actions))
            self.step += len(steps)
            time("infer", partial(self._observe, steps, observer))
            if self.learner.is_ready or not self._has_steps_left:
                if self._rollout is not None:
                    self.learner.reward(self._rollout.rewards())
                metrics = time("update", self.learner.update)
                metrics |= {} if self._rollout is None else self._rollout.metrics
                metrics |= environment_metrics(self.environments)
                time("log", partial(observer.on_metrics, self.step, metrics))
            time("log", partial(observer.on_step, self.step, self))

    @property
    def _has_steps_left(self) -> bool:
        return self.steps - self.step >= self.environments.num_envs

    def _begin(self) -> None:
        count = self.environments.num_envs
        # the step stands for the episodes before it, so that those of a warm resume are new ones
        seeds = [episode_seed(self.seed, self.step + index) for index in range(count)]
        observations = self._playing.begin(seeds)
        self.learner.begin(observations)
        if self._rollout is not None:
            self._rollout.restart(observations, self._playing.infos, count)

    def _observe(self, steps: VectorTransition, observer: TrainingObserver) -> None:
        cut = np.flatnonzero(steps.truncated)
        finals = {name: values[cut] for name, values in steps.next_observations.items()} if len(cut) else {}
        rewards = None if self._rollout is not None else steps.rewards
        if self._rollout is not None:
            self._rollout.add(steps)
        self.learner.observe(
            VectorStep(steps.following, rewards, steps.terminated, steps.truncated, finals, self._playing.costs)
        )
        for ended in self._playing.ended:
            self.reports.report_ended(observer, self.step, ended, len(steps))

    @override
    def state_dict(self) -> StateDict:
        training = self.counters() | {"lasting": lasting_state(self.environments)}
        state = {"learner": self.learner.state_dict(), "training": training, "environments": self._playing.state_dict()}
        return state if self._rollout is None else state | {"rewards": self._rollout.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a training; `resumed` is "exact" if its environments continue their episodes."""
        training = state["training"]
        self.learner.load_state_dict(state["learner"])
        self._playing.load_state_dict(state["environments"])
        self.load_counters(training)
        load_lasting_state(self.environments, training["lasting"])
        repeats = self._rollout is None or self._rollout.repeats_itself
        self.resumed = "exact" if repeats and self._playing.is_under_way else "warm"
        if self._rollout is not None:
            self._rollout.load_state_dict(state["rewards"])


class UnrewardedRollout(Stateful):
    """Collects the rewards of a model for the steps of the running rollout; steps are scored once enough of them wait."""

    def __init__(self, rewards: DelayedRewards, instruction: str | None) -> None:
        self._rewards, self._instruction = rewards, instruction
        self._scored: list[StepRewards] = []

    @property
    def repeats_itself(self) -> bool:
        """True if the same steps always get the same rewards."""
        return self._rewards.repeats_itself

    @property
    def metrics(self) -> Metrics:
        """Scalars that the reward model reports."""
        return self._rewards.metrics

    def restart(self, observations: Mapping[str, Array], infos: Mapping[str, Any], count: int) -> None:
        """Begin an episode in each of `count` environments; an unfinished rollout is discarded."""
        self._rewards.restart()
        self._scored = []
        for index in range(count):
            self._begin(index, observations, infos)

    def add(self, steps: VectorTransition) -> None:
        """Pass a step of all environments to the reward model."""
        self._rewards.add_all(
            steps.next_observations,
            actions=steps.actions,
            rewards=steps.rewards,
            terminated=steps.terminated,
            truncated=steps.truncated,
        )
        for index in np.flatnonzero(steps.ended).tolist():
            self._begin(index, steps.following, steps.infos)
        if self._rewards.is_due:
            self._scored.append(self._rewards.score())

    def rewards(self) -> StepRewards:
        """Return the rewards of the T N steps of the rollout, ordered by step, then environment; begin the next rollout."""
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
        """Restore the state returned by `state_dict`; if the environments begin new episodes, call `restart` afterwards."""
        scored = state["scored"]
        self._scored = [StepRewards(Labels(scored["values"], scored["valid"]), scored["ends"])]
        self._rewards.load_state_dict(state["waiting"])


def _join(parts: Sequence[StepRewards]) -> StepRewards:
    ends = [np.zeros(0, np.bool_), *(part.ends for part in parts)]
    return StepRewards(Labels.joined([Labels.missing(0), *(part.labels for part in parts)]), np.concatenate(ends))
