"""Preference as reward: a bounded, centred sigmoid of how much better an episode is than stored references."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.shaping.stage import Known, Place, RunningStage, Values
from robo_rl.rewards.steps import Steps
from robo_rl.types import StateDict


@dataclass(frozen=True)
class PreferenceAsReward:
    """Pays nothing until the episode ends, then mean over references of sigmoid(slope * (score - reference)), less `offset`.

    score: the sum of the episode's rewards before this stage. After Fu et al. 2025, "Reward Shaping to Mitigate Reward Hacking
    in RLHF" (arXiv:2502.18770). A score that runs away earns at most 1 - offset. Never paid per step: T sigmoids would be a
    wage of about T / 2 for long episodes.
    """

    references: str
    """A JSON file {"scores": [...]} of episodes of the policy before training (`robo-rl reward references`), drawn once."""
    slope: float = 1.0
    """k of the paper, per unit of the score."""
    offset: float = 0.5
    """What an episode as good as the references would be paid without; 0 as in the paper, 0.5 pays it nothing."""

    def __post_init__(self) -> None:
        require_allowed(self, {"slope": (0 < self.slope < np.inf, "above 0"), "offset": (0 <= self.offset <= 1, "0 to 1")})

    @cached_property
    def scores(self) -> tuple[float, ...]:
        """The stored scores; raises InvalidSetting for a file that holds none."""
        try:
            found = json.loads(Path(self.references).read_text())["scores"]
            scores = tuple(float(score) for score in found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidSetting(
                f"{self.references} holds no references.",
                got=f"{type(error).__name__}: {error}",
                allowed='JSON such as {"scores": [0.2, 0.5]}',
                fix="robo-rl reward references REWARD --dataset DATASET --out FILE",
            ) from None
        if not scores or not np.isfinite(scores).all():
            raise InvalidSetting(f"{self.references} holds no references.", got=found, allowed="one finite number or more")
        return scores

    @property
    def identity(self) -> dict[str, Any]:
        """Scores, slope, offset."""
        return {"scores": list(self.scores), "slope": self.slope, "offset": self.offset}

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work."""
        del place
        return _Running(self)

    def of(self, score: float) -> float:
        """Returns what an episode of that score is paid."""
        return shaped(score, self.scores, self.slope) - self.offset


def shaped(score: float, references: Sequence[float], slope: float = 1.0) -> float:
    """Returns the mean over references of sigmoid(slope * (score - reference)), in [0, 1]."""
    away = slope * (score - np.asarray(references, np.float64))
    return float(np.mean(0.5 + 0.5 * np.tanh(0.5 * away)))  # the sigmoid, without an overflow


class _Running:
    def __init__(self, stage: PreferenceAsReward) -> None:
        self._stage = stage
        self._sums: dict[int, tuple[float, bool]] = {}

    @property
    def entries(self) -> tuple[str, ...]:
        return ()

    def apply(self, steps: Steps, values: Values, known: Known) -> tuple[Values, Known]:
        found, is_known, ended = np.zeros(len(steps)), known.copy(), steps.ended
        for row, index in enumerate(steps.index.tolist()):
            total, was_known = (0.0, True) if steps.begins[row] else self._sums[index]
            total, all_known = total + float(values[row]), was_known and bool(known[row])
            self._sums[index] = (total, all_known)
            if ended[row]:
                found[row], is_known[row] = (self._stage.of(total) if all_known else 0.0), all_known
        return found, is_known

    def restart(self) -> None:
        self._sums.clear()

    def state_dict(self) -> StateDict:
        return {"sums": {str(index): list(pair) for index, pair in self._sums.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        self._sums = {int(index): (total, was_known) for index, (total, was_known) in state["sums"].items()}
