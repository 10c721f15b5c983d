"""Memory of an on-policy learner: one rollout of T steps of N environments, overwritten by the next rollout.

D is the number of elements of an observation without pictures. Observations and rewards are normalised as they are stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.moments import Normalizer
from robo_rl.protocols.components import Stateful
from robo_rl.requirements import require_finite_data
from robo_rl.spec.environment import ActionSpec, ArraySpec, ObservationSpec
from robo_rl.training.advantages import generalized_advantages
from robo_rl.training.collected_rollout import CollectedRollout
from robo_rl.training.on_policy import OnPolicyConfig, VectorStep
from robo_rl.types import Array, StateDict, StepRewards

Floats = npt.NDArray[np.float32]
Value = Callable[[Floats, Mapping[str, Array]], Floats]
"""Function that returns V (K,) for K observations: normalised vectors (K, D), and the observations themselves."""


class RolloutBuffer(Stateful):
    """Memory of one rollout, arrays (T, N, ...) that are allocated once; arrays of observations have T + 1 steps."""

    def __init__(
        self, config: OnPolicyConfig, vectors: ObservationSpec, pictures: Sequence[ArraySpec], action: ActionSpec
    ) -> None:
        shape = steps, environments = config.steps_per_env, config.num_envs
        self._spec, self._discount, self._lambda = vectors, config.discount, config.gae_lambda
        self.observations = Normalizer(vectors.size, is_on=config.normalize.observations)
        self._scale = Normalizer(1, is_on=config.normalize.rewards, is_centred=False)
        self.vectors = np.zeros((steps + 1, environments, vectors.size), np.float32)
        """(T+1, N, D) scaled."""
        self.pictures = {each.name: np.zeros((steps + 1, environments, *each.shape), each.dtype) for each in pictures}
        self.actions: Array = np.zeros((steps, environments, *action.shape), action.dtype)
        """(T, N, ...) as drawn, before any clipping."""
        self.rewards = np.zeros(shape, np.float32)
        """(T, N) scaled."""
        self.ended = np.zeros(shape, np.bool_)
        """(T, N) True if an episode ended with the step, for whatever reason."""
        self.final_values = np.zeros(shape, np.float32)
        """(T, N) value of the last observation of an episode that was cut, 0 elsewhere."""
        self.valid = np.ones(shape, np.bool_)
        """(T, N) False if a model gave no reward."""
        self.returns = np.zeros(environments)
        """(N,) discounted return of each running episode, by which rewards are scaled."""
        self.length = 0
        self.rollouts = 0
        """Rollouts before this one."""

    @property
    def is_full(self) -> bool:
        """True once T steps are stored."""
        return self.length == len(self.rewards)

    def begin(self, observations: Mapping[str, Array]) -> None:
        """Begin an episode in each environment, and discard an unfinished rollout; raises NonFiniteUpdate."""
        vectors = self._finite("observations", observations)
        self.observations.merge(vectors)
        self._begin(vectors, observations, are_new=True)

    def add(self, step: VectorStep, value: Value) -> None:
        """Store the outcome of the actions `actions[length]`, and increase `length` by 1.

        Args:
            step: Outcome of one step of all environments.
            value: Returns V (N,) of observations. It is called with the last observations of episodes that were cut, such as at
                a time limit; the advantages use these values in the place of the rewards that were not seen.

        Raises:
            NonFiniteUpdate: An observation or reward is not finite; nothing has been stored.
        """
        vectors = self._finite_step(step)
        self.observations.merge(vectors)
        self._add(step, vectors, value)

    def add_rollout(self, rollout: CollectedRollout, value: Value) -> None:
        """Store a whole rollout that other processes collected with the present policy.

        Raises NonFiniteUpdate as `add` does.

        All of it is normalised by the moments with which the collectors acted, and added to the moments afterwards, because
        collectors do not know each other's observations.
        """
        steps = [*rollout.steps()]
        first = {name: values[0] for name, values in rollout.observations.items()}
        vectors = [self._finite("observations", first), *map(self._finite_step, steps)]
        self._begin(vectors[0], first, are_new=rollout.begins)
        for step, actions, observed in zip(steps, rollout.actions, vectors[1:], strict=True):
            self.actions[self.length] = actions
            self._add(step, observed, value)
        for observed in vectors if rollout.begins else vectors[1:]:
            self.observations.merge(observed)

    def reward(self, rewards: StepRewards) -> None:
        """Store the rewards of a rollout whose steps came without rewards: T N labels, ordered by step, then by environment."""
        labels, count = rewards.labels, len(self.returns)
        paid = np.where(labels.valid, labels.values, np.float32(0)).reshape(-1, count)
        ends, taken = rewards.ends.reshape(-1, count), slice(len(paid))
        self.ended[taken] |= ends
        self.final_values[taken][ends] = 0.0  # an end as the model sees it, although a time limit may have cut, too
        for step, (values, ended) in enumerate(zip(paid, self.ended[taken], strict=True)):
            self.rewards[step] = self.scaled_rewards(values, ended)  # one that is missing, a zero, counts for the scale alone
        self.valid[taken] = labels.valid.reshape(-1, count)

    def scaled(self, observations: Mapping[str, Array]) -> Floats:
        """Return the normalised vectors (K, D) of K observations."""
        return self.observations.scaled(self._spec.stack(observations))

    @property
    def reward_deviation(self) -> float:
        """Standard deviation by which rewards are divided: that of the discounted return so far."""
        return 1.0 / float(self._scale.scaled(np.ones((1, 1)))[0, 0])

    def scaled_rewards(self, rewards: Array, ended: Array) -> Floats:
        """Return rewards (N,) divided by the running deviation of the discounted return; no mean is subtracted.

        The rewards are first added to the returns from which the deviation is computed.

        Args:
            rewards: (N,) rewards of one step.
            ended: (N,) True if the episode ended with the step.
        """
        np.add(self.returns * self._discount, rewards, out=self.returns)
        self._scale.merge(self.returns[:, None])
        self.returns[ended] = 0.0
        return self._scale.scaled(rewards[:, None])[:, 0]

    def advantages(self, values: Floats) -> Floats:
        """Return generalised advantage estimates (T, N), given the values (T+1, N) of all observations."""
        taken = slice(len(values) - 1)
        return generalized_advantages(
            self.rewards[taken],
            values,
            discount=self._discount,
            gae_lambda=self._lambda,
            ended=self.ended[taken],
            final_values=self.final_values[taken],
            valid=self.valid[taken],
        )

    def newest(self) -> tuple[Floats, dict[str, Array]]:
        """Return the normalised vectors (N, D) and the pictures, name -> (N, ...), of the newest observations."""
        return self.vectors[self.length], {name: frames[self.length] for name, frames in self.pictures.items()}

    def restart(self) -> None:
        """Begin the next rollout, with the newest observations of this one as its first."""
        for stored in (self.vectors, *self.pictures.values()):
            stored[0] = stored[self.length]
        self.length = 0
        self.rollouts += 1

    def _begin(self, vectors: Floats, observations: Mapping[str, Array], *, are_new: bool) -> None:
        if are_new:
            self.returns[:] = 0.0
        self.length = 0
        self._place(0, vectors, observations)

    def _add(self, step: VectorStep, vectors: Floats, value: Value) -> None:
        number, ended = self.length, step.terminated | step.truncated
        self.ended[number], self.valid[number], self.final_values[number] = ended, True, 0.0
        if step.final_observations:
            cut = step.truncated & ~step.terminated
            self.final_values[number][cut] = value(self.scaled(step.final_observations), step.final_observations)
        self.rewards[number] = 0.0 if step.rewards is None else self.scaled_rewards(step.rewards, ended)
        self._place(number + 1, vectors, step.observations)
        self.length = number + 1

    def _place(self, number: int, vectors: Floats, observations: Mapping[str, Array]) -> None:
        self.vectors[number] = self.observations.scaled(vectors)
        for name, frames in self.pictures.items():
            frames[number] = observations[name]

    def _finite(self, name: str, observations: Mapping[str, Array]) -> Floats:
        """Return the vectors (N, D), not normalised; raises NonFiniteUpdate if they are not finite."""
        vectors = self._spec.stack(observations)
        require_finite_data({name: vectors}, self.rollouts, "rollout", columns=self._spec.columns)
        return vectors

    def _finite_step(self, step: VectorStep) -> Floats:
        if step.rewards is not None:
            require_finite_data({"rewards": step.rewards}, self.rollouts, "rollout")
        if step.final_observations:
            self._finite("final observations", step.final_observations)
        return self._finite("observations", step.observations)

    @override
    def state_dict(self) -> StateDict:
        arrays = {name: np.array(value) for name, value in self._arrays().items()}
        moments = {"observation_moments": self.observations.state_dict(), "reward_moments": self._scale.state_dict()}
        return arrays | moments | {"length": self.length, "rollouts": self.rollouts}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name, value in self._arrays().items():
            value[...] = state[name]
        self.observations.load_state_dict(state["observation_moments"])
        self._scale.load_state_dict(state["reward_moments"])
        self.length, self.rollouts = int(state["length"]), int(state["rollouts"])

    def _arrays(self) -> dict[str, Array]:
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return arrays | {f"pictures_{name}": frames for name, frames in self.pictures.items()}


class RolloutLearner(ABC):
    """Base class of on-policy learners that keep their rollouts in a RolloutBuffer.

    Subclasses implement acting and learning.
    """

    buffer: RolloutBuffer

    @abstractmethod
    def values(self, vectors: Floats, pictures: Mapping[str, Array]) -> Floats:
        """Return V (K,) for normalised vectors (K, D) and pictures, name -> (K, ...)."""

    @property
    def is_ready(self) -> bool:
        """True once the rollout has its full length."""
        return self.buffer.is_full

    def begin(self, observations: Mapping[str, Array]) -> None:
        """Begin an episode in each environment, and discard an unfinished rollout; raises NonFiniteUpdate."""
        self.buffer.begin(observations)

    def observe(self, step: VectorStep) -> None:
        """Store the outcome of the newest actions; raises NonFiniteUpdate, without a change, if it is not finite."""
        self.buffer.add(step, self.values)

    def add_rollout(self, rollout: CollectedRollout) -> None:
        """Store a whole rollout that other processes collected with the present policy.

        Raises NonFiniteUpdate if its numbers are not finite.
        """
        self.buffer.add_rollout(rollout, self.values)

    def reward(self, rewards: StepRewards) -> None:
        """Store the rewards of a rollout whose steps came without rewards: T N labels, ordered by step, then by environment."""
        self.buffer.reward(rewards)
