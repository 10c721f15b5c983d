"""The return of an episode, paid with its last step: the reward that return decomposition is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robo_rl.rewards.place import Place
from robo_rl.rewards.step_reward import StepReward
from robo_rl.rewards.steps import Judged, StepQueue, Steps
from robo_rl.types import Labels


@dataclass(frozen=True)
class EpisodicReward(StepReward):
    """Withholds the environment's reward until the episode ends."""

    name: ClassVar[str] = "episodic"

    def score_steps(self, steps: Steps, place: Place) -> Judged:
        """Return the return at the last step and 0 before it; a return that is not finite is missing."""
        totals, values, ended = place.memory.setdefault("totals", {}), np.zeros(len(steps)), steps.ended
        for row, index in enumerate(map(str, steps.index.tolist())):
            before = 0.0 if steps.begins[row] else totals[index]
            totals[index] = before + float(steps.rewards[row])
            values[row] = totals[index] if ended[row] else 0.0
        return Judged(Labels.finite(values, dtype=np.float64), {})

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True at once: what a step is paid is known when it is taken."""
        return len(waiting) > 0

    def entries(self, place: Place) -> tuple[str, ...]:
        """Return none."""
        return ()
