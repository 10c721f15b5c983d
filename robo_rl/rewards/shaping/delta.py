"""Pays the change of a reward instead of the reward, so that waiting where it is high earns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robo_rl.rewards.place import Place
from robo_rl.rewards.shaping.stage import Stage
from robo_rl.rewards.steps import Steps
from robo_rl.types import Labels


@dataclass(frozen=True)
class Delta(Stage):
    """Pays r(t) - r(t-1), and r(0) in the first step: an episode adds up to the reward of its last step, however long it was.

    After the mechanism Delta of Gao et al. 2024 (arXiv:2410.15115), which bounds what repeated steps can earn. Theirs pays
    r(t) - r(t+1) and needs the step that follows; ours looks back, so that it can be paid while a policy acts.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the differences; the step after a missing one has none."""
        values, valid = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        before = place.memory.setdefault("before", {})
        for row, index in enumerate(map(str, steps.index.tolist())):
            last, was_valid = (0.0, True) if steps.begins[row] else before[index]
            values[row], valid[row] = labels.values[row] - last, labels.valid[row] and was_valid
            before[index] = [float(labels.values[row]), bool(labels.valid[row])]
        return Labels(values, valid)
