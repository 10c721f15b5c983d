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
from robo_rl.rewards.place import Place
from robo_rl.rewards.shaping.stage import Stage
from robo_rl.rewards.steps import Steps
from robo_rl.types import Labels


@dataclass(frozen=True)
class PreferenceAsReward(Stage):
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

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return 0 until the episode ends; an episode with a missing reward has none then."""
        values, valid, ended = np.zeros(len(steps)), labels.valid.copy(), steps.ended
        sums = place.memory.setdefault("sums", {})
        for row, index in enumerate(map(str, steps.index.tolist())):
            total, was_valid = (0.0, True) if steps.begins[row] else sums[index]
            total, all_valid = total + float(labels.values[row]), was_valid and bool(labels.valid[row])
            sums[index] = [total, all_valid]
            if ended[row]:
                values[row], valid[row] = (self.of(total) if all_valid else 0.0), all_valid
        return Labels(values, valid)

    def of(self, score: float) -> float:
        """Returns what an episode of that score is paid."""
        return shaped(score, self.scores, self.slope) - self.offset


def shaped(score: float, references: Sequence[float], slope: float = 1.0) -> float:
    """Returns the mean over references of sigmoid(slope * (score - reference)), in [0, 1]."""
    away = slope * (score - np.asarray(references, np.float64))
    return float(np.mean(0.5 + 0.5 * np.tanh(0.5 * away)))  # the sigmoid, without an overflow
