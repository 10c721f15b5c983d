"""The reward for subgoals in addition to the environment's own reward, in training alone.

    r = weight * (r_environment + bonus * sum over completed subgoals of (1 - steps since the one before / max_steps))

The environment gives the sum in `subgoal_bonus`, which no policy sees. Ruiz-Gonzalez et al. 2024, eq. of the reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores
from robo_rl.types import Episode, Labels, RewardLabels

BONUS = "subgoal_bonus"


@dataclass(frozen=True)
class SubgoalReward(StepReward):
    """Reward: the environment's own, and a bonus for each completed subgoal; for environments made with a `teacher`."""

    name: ClassVar[str] = "subgoals"
    bonus: float = 0.2
    """Bonus of a subgoal that is completed at once; the authors' experiments have 0.2."""

    def __post_init__(self) -> None:
        require_allowed(self, {"bonus": (bool(np.isfinite(self.bonus)), "a finite number")})

    @override
    def label(self, episode: Episode) -> RewardLabels:
        _require(episode.observations, "the recorded episode")
        earned = episode.observations[BONUS][1:, 0]
        return Labels.finite(episode.rewards + self.bonus * earned).by(self.identity)

    @override
    def require(self, place: Place) -> None:
        _require(place.spec.observation, place.name)

    @override
    def entries(self, place: Place) -> Sequence[str]:
        return (BONUS,)

    def is_due(self, waiting: StepQueue) -> bool:
        """Return False, because steps are scored when the rollout ends."""
        return False

    def hidden(self) -> Sequence[str]:
        """Return the name of the entry with the bonus, which no policy sees."""
        return (BONUS,)

    @override
    def facts(self, place: Place) -> Mapping[str, str | float]:
        return {"bonus": self.bonus}

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the environment's rewards plus the bonus of subgoals."""
        earned = self.bonus * steps.after[BONUS][:, 0].astype(np.float64)
        terms = {"subgoals_completed": (earned != 0.0).astype(np.float64), "bonus_return": earned}
        return StepScores(Labels.finite(steps.rewards + earned, dtype=np.float64), terms)


def _require(names: Mapping[str, object], source: str) -> None:
    if BONUS not in names:
        raise InvalidSetting(
            f"There are no subgoals in {source}.",
            got=sorted(names),
            allowed=f"an observation {BONUS!r}",
            fix="set reward.arguments to {teaching: {teacher: perfect}}, and environment.arguments.subgoals to position",
        )
