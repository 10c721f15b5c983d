"""Base of rewards of steps: their scores and their optional properties.

Batching over environments, delays, missing answers, metrics and resuming are `robo_rl.rewards.step_rewards.online_scoring`'s.
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
    """Scorer of steps. Its settings are its fields; `name` and `score_steps` are all that it must have."""

    remedy: ClassVar[str] = "look at the model's answers (robo-rl label shows them on recorded episodes), then resume the run"
    """Fix in the error after many steps without a reward."""
    is_weighted: ClassVar[bool] = False
    """True if `score_steps` has applied the weight."""

    @abstractmethod
    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the rewards of one step or more, before the weight."""

    # optional

    @property
    def every(self) -> int:
        """Steps per call while a policy acts."""
        return 256

    @property
    def repeats_itself(self) -> bool:
        """False if the same steps may get other rewards the next time: resuming is then warm."""
        return True

    def require(self, place: Place) -> None:
        """Raise InvalidSetting if the steps of an environment cannot be rewarded."""

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting if demonstrations cannot be rewarded like steps of the policy."""

    def start(self, place: Place) -> None:
        """Prepare for the first step of a run."""

    def entries(self, place: Place) -> Sequence[str]:
        """Return the entries of an observation that it reads; all but pictures by default."""
        return [array.name for array in place.spec.observation.arrays if array.role != "image"]

    def keep(self, observations: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the part of N observations, name -> (N, ...), to store until their steps are scored: copies by default.

        A reward may store less, under the names that `score_steps` then finds in `Steps.before` and `after`.
        """
        return copies(observations)

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True once the queue has enough steps for one call."""
        return len(waiting) >= self.every

    def hidden(self) -> Sequence[str]:
        """Return the entries of an observation for the reward alone."""
        return ()

    def facts(self, place: Place) -> Mapping[str, str | float]:
        """Return further facts that the rewards follow from, beyond `identity`; a run resumes with the same only."""
        return {}

    def metrics(self, place: Place) -> Metrics:
        """Return scalars by tag beyond the sums of terms and the share of missing rewards, which are always logged."""
        return {}

    def relabelling(self, place: Place) -> Relabelling | None:
        """Return the relabelling of batches, or None if rewards do not change."""
        return None
