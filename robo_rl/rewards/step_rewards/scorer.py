"""Base class of rewards that score single steps, with properties that a reward may override.

`robo_rl.rewards.step_rewards.online_scoring` provides batching, delays, missing rewards, metrics and resuming.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from robo_rl.protocols.rewards import Relabelling
from robo_rl.rewards.identity import NamedSettings
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores, copies
from robo_rl.types import Array, Metrics


class StepScorer(NamedSettings, ABC):
    """Base class of rewards that score single steps, many in one call.

    A subclass needs only `name` and `score_steps`; its dataclass fields are its settings.
    """

    remedy: ClassVar[str] = "look at the model's answers (robo-rl label shows them on recorded episodes), then resume the run"
    """Remedy in the error that is raised after many steps without a reward."""
    is_weighted: ClassVar[bool] = False
    """True if `score_steps` already multiplies rewards by `Place.weight`."""

    @abstractmethod
    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the rewards of K steps, K >= 1, before they are multiplied by `Place.weight`.

        Args:
            steps: Steps of one or more environments, in order.
            place: Context of the reward: spec, discount, memory of earlier steps.
        """

    # optional

    @property
    def every(self) -> int:
        """Number of steps that are scored in one call of `score_steps` while a policy acts."""
        return 256

    @property
    def repeats_itself(self) -> bool:
        """False if the same steps may get other rewards the next time; a resume is then warm."""
        return True

    def require(self, place: Place) -> None:
        """Raise InvalidSetting if the steps of this environment cannot be rewarded."""

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting if the reward cannot label demonstrations."""

    def start(self, place: Place) -> None:
        """Prepare for the first step of a run."""

    def entries(self, place: Place) -> Sequence[str]:
        """Return the names of the observation entries that the reward reads; by default all but pictures."""
        return [array.name for array in place.spec.observation.arrays if array.role != "image"]

    def keep(self, observations: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the part of N observations, name -> (N, ...), to store until their steps are scored; by default copies.

        A reward may store less, under other names; `Steps.before` and `Steps.after` then have these names.
        """
        return copies(observations)

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True once the queue has enough steps for one call of `score_steps`."""
        return len(waiting) >= self.every

    def hidden(self) -> Sequence[str]:
        """Return the names of observation entries that only the reward reads, so that they are hidden from the policy."""
        return ()

    def facts(self, place: Place) -> Mapping[str, str | float]:
        """Return further values that the rewards depend on, beyond `identity`; a run resumes only with the same values."""
        return {}

    def metrics(self, place: Place) -> Metrics:
        """Return further scalars for the log.

        The sums of terms and the share of missing rewards are always logged.
        """
        return {}

    def relabelling(self, place: Place) -> Relabelling | None:
        """Return the object that replaces the rewards in sampled batches, or None if rewards do not change once given."""
        return None
