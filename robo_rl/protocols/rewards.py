"""Protocols of rewards of models: for labelling recorded episodes, and for learning while acting.

    RewardModel      labels recorded episodes
    OnlineRewards    the reward of a run: spec of the policy, labels of demonstrations, scoring of environments
    DelayedRewards   scores N environments under way: steps in, labels out some time later
    Relabelling      replaces rewards in batches, for a reward that changes as it is learned

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
    keeps_answers: ClassVar[bool] = False
    """True if its labels follow from answers that are kept in a store, so that a cache of labels would hold them twice."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, str]:
        """Name, and a hash of all that its labels follow from, such as weights: their `model` and `weights_hash`."""

    @abstractmethod
    def label(self, episode: Episode) -> RewardLabels:
        """Return one label per step."""

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yield the labels of each episode, in order; to be overridden by models that are faster on several at once."""
        return map(self.label, episodes)

    def require_recorded(self, spec: EnvironmentSpec) -> None:  # noqa: B027 - most say so of an episode
        """Raise InvalidSetting if recorded episodes of that spec cannot be labelled."""

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineRewards:
        """Return its rewards for an environment of that spec, times `weight`.

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
        """Sources of the rewards: names, hashes of weights and words, factors; a run resumes with no other."""

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec that a policy sees and the replay stores: without the entries drawn for the reward alone."""

    def running(self, environments: int) -> DelayedRewards:
        """Return the scorer of `environments` environments under way."""

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yield a recorded episode as a policy of `spec` would have seen it, with these rewards, cut at missing ones."""


class DelayedRewards(ABC):
    """Delayed rewards of a model for the steps of N environments: many at once, some of them missing."""

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
        """Relabelling of batches with the present rewards; None if rewards are constant."""
        return None

    @abstractmethod
    def restart(self) -> None:
        """Forget waiting steps: all environments are about to begin an episode."""

    @abstractmethod
    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode; `observation` includes the model's inputs."""

    @abstractmethod
    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`, the last one of its episode if that ended.

        action: as executed. reward: the environment's own, read only by a reward that declares to add to it or to decompose
        returns of episodes.
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
        """Restore the state returned by `state_dict` for as many environments."""


class Relabelling(Protocol):
    """Rewards of one environment that change as they are learned: none is stored, each batch gets the present ones.

    `score` returns, and the replay memory stores, buffer indices of the steps in place of rewards. Only a loop that relabels
    its batches can learn from them; others reject them (`robo_rl.training.delayed_rewards`).
    """

    def reserve(self, steps: int) -> None:
        """Make room for the newest `steps` steps; called once, before everything else."""

    def update(self) -> Metrics:
        """Learn from the returns of whole episodes; return metrics, empty if they are not due."""

    def relabel(self, batch: Batch) -> Batch:
        """Replace the buffer indices in a batch of single steps by rewards."""
