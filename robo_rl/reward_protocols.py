"""What rewards of models promise, to whoever labels recorded episodes with them and whoever learns from them while acting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

from robo_rl.protocols import Stateful
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Episode, Metrics, RewardLabels, StepRewards


class DelayedRewards(Stateful, Protocol):
    """Rewards that a model gives the steps of N environments: many at once, some time after the steps, and for some never."""

    @property
    def is_due(self) -> bool:
        """True once enough wait to be scored."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Scalars such as the model's mean return over recent episodes."""
        ...

    def restart(self) -> None:
        """Forgets what waits: all environments are about to begin an episode."""
        ...

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode; `observation` holds what the model looks at."""
        ...

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`, the last one of its episode if that ended.

        action: as it was executed. reward: the environment's own, for a reward that adds to it or decomposes what an episode
        returned, and says so; no other reads it.
        """
        ...

    def score(self) -> StepRewards:
        """Return the rewards of the K steps added since the last call, in their order.

        Raises RewardUnavailable if the model has given no usable answer for long.
        """
        ...


@runtime_checkable
class Relabelling(DelayedRewards, Protocol):
    """Rewards of one environment that change as they are learned: no reward is stored, each batch gets those of the moment.

    What `score` returns, and what the replay memory then holds in the place of rewards, are the places of the steps in a memory
    of its own. Only a loop that relabels what it samples can learn from them; others refuse them (`robo_rl.waiting`).
    """

    def reserve(self, steps: int) -> None:
        """Makes room for the newest `steps` steps; called once, before everything else."""
        ...

    def update(self) -> Metrics:
        """Learns from what whole episodes returned; returns metrics, empty where they are not due."""
        ...

    def relabel(self, batch: Batch) -> Batch:
        """Returns a batch of single steps with rewards in the place of places."""
        ...


@runtime_checkable
class DelayedVectorRewards(DelayedRewards, Protocol):
    """Rewards that are shown a step of all environments at once, where one after the other would take too long."""

    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Every environment took a step: what `add` is told, as arrays (N, ...), which stay the caller's."""
        ...


@runtime_checkable
class UnrepeatableRewards(Protocol):
    """Rewards that may follow from when answers come, and not from the steps alone."""

    @property
    def repeats_itself(self) -> bool:
        """False where the same steps may get other rewards the next time: resuming is then warm."""
        ...


class OnlineRewards(Protocol):
    """A reward of a model that a policy learns from while it acts."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What the rewards follow from: names, hashes of weights and words, factors; a run goes on with no other."""
        ...

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec without what is drawn for the reward alone: what a policy sees, and what is kept to learn from."""
        ...

    def running(self, environments: int) -> DelayedRewards:
        """Returns what scores so many environments under way."""
        ...

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode as a policy of `spec` would have lived it, with these rewards, cut where one is missing."""
        ...


class RewardModel(Protocol):
    """Labels recorded episodes. Its settings are its fields, so that a file can name them."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its name and a hash of all that its labels follow from, such as weights: their `model` and `weights_hash`."""
        ...

    def label(self, episode: Episode) -> RewardLabels:
        """Returns one value per step, and which of them are missing."""
        ...


@runtime_checkable
class RewardModelOfMany(Protocol):
    """A reward model that labels many episodes faster than one after the other, and is asked in vain at little cost."""

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yields what `label` returns for each episode, in their order."""
        ...


@runtime_checkable
class OnlineRewardModel(RewardModel, Protocol):
    """A reward model that a policy can learn from while it acts, though it does not look at pictures."""

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineRewards:
        """Returns what gives its rewards in an environment of that spec, times `weight`.

        discount: the learner's, where it has one. Raises InvalidSetting for an environment that it cannot judge.
        """
        ...
