"""Pays the progress towards a goal that the observation contains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robo_rl.rewards.step_rewards import Place, StepReward, Steps, StepScores
from robo_rl.types import Labels


@dataclass(frozen=True)
class GoalProgress(StepReward):
    """Decrease of the distance between two positions in each step [m]."""

    name: ClassVar[str] = "goal-progress"
    position: str = "end_effector_position"
    """Name of a position in the observation."""
    goal: str = "goal_position"
    """Name of the position that it should reach."""

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the progress of K steps; a step with an unknown position has no label."""
        before, after = (np.linalg.norm(side[self.position] - side[self.goal], axis=-1) for side in (steps.before, steps.after))
        return StepScores(Labels.finite(before - after))
