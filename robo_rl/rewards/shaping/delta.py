"""Pays the change of a reward instead of the reward, so that waiting where it is high earns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robo_rl.rewards.shaping.stage import Known, Place, RunningStage, Values
from robo_rl.rewards.steps import Steps
from robo_rl.types import StateDict


@dataclass(frozen=True)
class Delta:
    """Pays r(t) - r(t-1), and r(0) in the first step: an episode adds up to the reward of its last step, however long it was.

    After the mechanism Delta of Gao et al. 2024 (arXiv:2410.15115), which bounds what repeated steps can earn. Theirs pays
    r(t) - r(t+1) and needs the step that follows; ours looks back, so that it can be paid while a policy acts.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work."""
        del place
        return _Running()


class _Running:
    def __init__(self) -> None:
        self._before: dict[int, tuple[float, bool]] = {}

    @property
    def entries(self) -> tuple[str, ...]:
        return ()

    def apply(self, steps: Steps, values: Values, known: Known) -> tuple[Values, Known]:
        found, is_known = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        for row, index in enumerate(steps.index.tolist()):
            before, was_known = (0.0, True) if steps.begins[row] else self._before[index]
            found[row], is_known[row] = values[row] - before, known[row] and was_known
            self._before[index] = (float(values[row]), bool(known[row]))
        return found, is_known

    def restart(self) -> None:
        self._before.clear()

    def state_dict(self) -> StateDict:
        return {"before": {str(index): list(pair) for index, pair in self._before.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        self._before = {int(index): (value, was_known) for index, (value, was_known) in state["before"].items()}
