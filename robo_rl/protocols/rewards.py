"""Protocols of rewards of models: for labelling recorded episodes, and for learning while acting.

    RewardModel      labels recorded episodes
    OnlineRewards    the reward of a run: what a policy sees of it, what labels its demonstrations, what runs it
    DelayedRewards   runs a reward beside N environments: steps in, labels out some time later
    Relabelling      what `DelayedRewards` has besides if rewards change as they are learned

Authors of rewards write none of the last three: see `robo_rl.rewards.step_rewards` and `robo_rl.rewards.images`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Protocol

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Episode, Metrics, RewardLabels, StateDict, StepRewards


class RewardModel(ABC):
    """Labels recorded episodes. Its settings are its fields, so that a file can name them."""

    learns_in_a_run: ClassVar[bool] = False
    """True if it has no labels for a recorded dataset, because it is learned while a policy acts."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, str]:
        """Name, and a hash of all that its labels follow from, such as weights: their `model` and `weights_hash`."""

    @abstractmethod
    def label(self, episode: Episode) -> RewardLabels:
        """Return one label per step."""

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yield the labels of each episode, in their order; for models that label several at once faster than each alone."""
        return map(self.label, episodes)

    def require_recorded(self, spec: EnvironmentSpec) -> None:  # noqa: B027 - most say so of an episode
        """Raise InvalidSetting if recorded episodes of that spec cannot be labelled."""

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineRewards:
        """Return what gives its rewards in an environment of that spec, times `weight`.

        discount: the learner's, if it has one. Raises InvalidSetting for an environment that it cannot judge, and if it labels
        whole episodes.
        """
        raise InvalidSetting(
            f"The reward {self.identity[0]} cannot be given while a policy acts.",
            got=f"{type(self).__name__}, which labels whole episodes",
            allowed="a reward of single pictures (PictureReward) or of steps (StepReward)",
            fix="label a dataset with it (robo-rl label), or choose another (robo-rl reward list)",
        )


class OnlineRewards(Protocol):
    """The reward of a run, which a policy learns from while it acts."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Sources of the rewards: names, hashes of weights and words, factors; a run goes on with no other."""

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec without what is drawn for the reward alone: what a policy sees, and what is kept to learn from."""

    def running(self, environments: int) -> DelayedRewards:
        """Return what scores so many environments under way."""

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yield a recorded episode as a policy of `spec` would have seen it, with these rewards, cut where one is missing."""


class DelayedRewards(ABC):
    """Rewards that a model gives the steps of N environments: many at once, some time after the steps, and for some never."""

    repeats_itself: bool = True
    """False if the same steps may get other rewards the next time, as rewards that follow from when answers come: resuming is
    then warm."""

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """True once enough wait to be scored."""

    @property
    @abstractmethod
    def metrics(self) -> Metrics:
        """Scalars such as the model's mean return over recent episodes."""

    @property
    def relabelling(self) -> Relabelling | None:
        """Relabelling of batches with the rewards of the moment; None if a reward stays as it is."""
        return None

    @abstractmethod
    def restart(self) -> None:
        """Forget what waits: all environments are about to begin an episode."""

    @abstractmethod
    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode; `observation` holds what the model looks at."""

    @abstractmethod
    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`, the last one of its episode if that ended.

        action: as it was executed. reward: the environment's own, for a reward that adds to it or decomposes what an episode
        returned, and says so; no other reads it.
        """

    @abstractmethod
    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Every environment took a step: the arguments of `add` as arrays (N, ...), which stay the caller's."""

    @abstractmethod
    def score(self) -> StepRewards:
        """Return the rewards of the K steps added since the last call, in their order.

        Raises RewardUnavailable if the model has given no usable answer for long.
        """

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return everything that later rewards depend on."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned, of as many environments."""


class Relabelling(Protocol):
    """Rewards of one environment that change as they are learned: no reward is stored, each batch gets those of the moment.

    What `score` returns, and what the replay memory then holds in place of rewards, are the places of the steps in a memory
    of its own. Only a loop that relabels what it samples can learn from them; others refuse them
    (`robo_rl.training.delayed_rewards`).
    """

    def reserve(self, steps: int) -> None:
        """Make room for the newest `steps` steps; called once, before everything else."""

    def update(self) -> Metrics:
        """Learn from what whole episodes returned; return metrics, empty if they are not due."""

    def relabel(self, batch: Batch) -> Batch:
        """Return a batch of single steps with rewards in place of places."""
