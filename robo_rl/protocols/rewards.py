"""Interfaces of reward models: labelling of recorded episodes, and rewards during a training.

    RewardModel      labels recorded episodes
    OnlineRewards    reward of a training: spec that the policy sees, labels of demonstrations, scoring of running environments
    DelayedRewards   scores the steps of N running environments; labels come some time after the steps
    Relabelling      replaces the rewards in batches, for a reward that changes while it is learned

Authors of rewards implement none of the last three: see `robo_rl.rewards.step_rewards` and `robo_rl.rewards.images`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Protocol

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Episode, Metrics, RewardLabels, StateDict, StepRewards


class RewardModel(ABC):
    """Base class of reward models, which label the steps of recorded episodes with rewards.

    The fields of a subclass are its settings, which a recipe or file may set.
    """

    learns_in_a_run: ClassVar[bool] = False
    """True if the reward is learned during a training and therefore cannot label a recorded dataset."""
    keeps_answers: ClassVar[bool] = False
    """True if labels are computed from answers that are already stored, so that a cache of labels would store them twice."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, str]:
        """Name of the model, and a hash of everything that its labels depend on; stored with the labels."""

    @abstractmethod
    def label(self, episode: Episode) -> RewardLabels:
        """Return one label for each step of the episode."""

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yield the labels of each episode, in order. Override it if the model is faster with several episodes at once."""
        return map(self.label, episodes)

    def require_recorded(self, spec: EnvironmentSpec) -> None:  # noqa: B027 - most say so of an episode
        """Raise InvalidSetting if recorded episodes of this spec cannot be labelled."""

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineRewards:
        """Return an object that gives this model's rewards to a training in an environment of this spec.

        Args:
            spec: Spec of the environment.
            weight: Factor of the rewards.
            discount: Discount of the learner; None if it has none.

        Raises:
            InvalidSetting: The model labels only whole episodes, or cannot judge this environment.
        """
        raise InvalidSetting(
            f"The reward {self.identity[0]} cannot be given while a policy acts.",
            got=f"{type(self).__name__}, which labels whole episodes",
            allowed="a reward of single pictures (PictureReward) or of steps (StepReward)",
            fix="label a dataset with it (robo-rl label), or choose another (robo-rl reward list)",
        )


class OnlineRewards(Protocol):
    """Interface of a reward model in a training: a policy learns from its rewards while it acts."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name -> value of everything that the rewards depend on: names, hashes of weights and words, factors.

        A training resumes only with the same values.
        """

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec that policy and replay memory see: `spec` without the entries that only the reward model reads."""

    def running(self, environments: int) -> DelayedRewards:
        """Return an object that scores the steps of `environments` running environments."""

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yield a recorded episode with these rewards, in parts that end at steps without a label.

        spec: spec of the policy; entries that it lacks are left out.
        """


class DelayedRewards(ABC):
    """Base class of objects that score the steps of N running environments by a reward model, some time after the steps.

    The model scores many steps at once; some may have no label.
    """

    repeats_itself: bool = True
    """False if the same steps may get other rewards the next time, such as when rewards depend on when an answer arrives. The
    resume is then warm."""

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """True once enough steps wait to be scored."""

    @property
    @abstractmethod
    def metrics(self) -> Metrics:
        """Scalars for the log, such as the mean return by the model's rewards over recent episodes."""

    @property
    def relabelling(self) -> Relabelling | None:
        """Object that replaces the rewards in batches by the present rewards; None if rewards do not change."""
        return None

    @abstractmethod
    def restart(self) -> None:
        """Forget all steps that wait to be scored, because every environment is about to begin an episode."""

    @abstractmethod
    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Begin an episode of environment `index`; `observation` includes the entries that only the model reads."""

    @abstractmethod
    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Add a step of environment `index`.

        Args:
            index: Number of the environment, from 0.
            observation: Observation after the step; if the episode ended, its last one.
            action: Executed action.
            reward: The environment's own reward. Only a reward that declares so reads it: to add to it, or to decompose
                returns.
            terminated: True if the task ended.
            truncated: True if the episode was cut.
        """

    @abstractmethod
    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Add a step of every environment: the arguments of `add` as arrays (N, ...). The caller may change them afterwards."""

    @abstractmethod
    def score(self) -> StepRewards:
        """Return the rewards of the K steps that were added since the last call, in their order.

        Raises:
            RewardUnavailable: The model has given no usable answer for too long.
        """

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return everything that later rewards depend on."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the number of environments must be the same."""


class Relabelling(Protocol):
    """Interface of rewards that change while they are learned, so that each sampled batch gets the present rewards.

    In place of rewards `DelayedRewards.score` returns, and the replay memory stores, indices of steps in a buffer of this
    object. Only a training loop that relabels its batches can learn from them; other loops refuse
    (`robo_rl.training.delayed_rewards`).
    """

    def reserve(self, steps: int) -> None:
        """Allocate room for the newest `steps` steps; called once, before everything else."""

    def update(self) -> Metrics:
        """Update the learnt rewards from the returns of whole episodes; return metrics for the log, empty if none are due."""

    def relabel(self, batch: Batch) -> Batch:
        """Return the batch of single steps with rewards in place of the buffer indices."""
