"""A teacher that errs as published language models do, so that everything runs without one.

With probability 1 - accuracy a subgoal is replaced. A position moves to a cell at a Manhattan distance of
max(1, round(Normal(mean, deviation))); an object becomes a random other thing of the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.rewards.subgoals.level import Level, Subgoal
from robo_rl.rewards.subgoals.planner import PerfectTeacher

PUBLISHED: dict[str, tuple[float, float, float, float]] = {
    "keycorridor-s3r3-llama": (0.9743, 0.18, 1.20, 0.9847),
    "keycorridor-s3r3-deepseek": (0.3337, 2.57, 2.54, 0.9063),
    "keycorridor-s3r3-qwen": (0.9810, 0.07, 0.63, 0.9957),
}
"""Real models on KeyCorridorS3R3: accuracy of positions, mean and deviation of distance [cells], accuracy of things."""


@dataclass(frozen=True)
class NoisyTeacher:
    """The perfect teacher's subgoals, some replaced. A level always meets the same errors, as if answers had been stored."""

    model: str = ""
    """A published model, a key of PUBLISHED, in the place of the next three settings."""
    accuracy: float = 1.0
    """Probability that a subgoal is right."""
    distance: float = 0.0
    """Mean of the distance [cells] of a wrong position."""
    deviation: float = 0.0
    """Standard deviation of that distance [cells]."""
    errors: Literal["position", "object"] = "position"
    """What a wrong subgoal is: another cell, or another thing of the level."""
    seed: int = 0
    """Another seed, other errors."""

    def __post_init__(self) -> None:
        if self.model and self.model not in PUBLISHED:
            raise UnknownName("model with published errors", self.model, PUBLISHED)
        if self.model and (self.accuracy, self.distance, self.deviation) != (1.0, 0.0, 0.0):
            raise InvalidSetting(
                "The errors of a published model are known.", got=self, fix="leave out either model or figures"
            )
        require_allowed(self, {"accuracy": (0.0 <= self.accuracy <= 1.0, "0 to 1")})
        require_allowed(self, {name: (getattr(self, name) >= 0, "0 or more") for name in ("distance", "deviation", "seed")})

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns subgoals, each right with the probability of the settings, independently."""
        random = np.random.default_rng([self.seed, level.number])
        accuracy, mean, deviation, of_objects = PUBLISHED.get(
            self.model, (self.accuracy, self.distance, self.deviation, self.accuracy)
        )
        if self.errors == "object":
            return [self._another_thing(part, level, random, of_objects) for part in PerfectTeacher().subgoals(level)]
        return [
            part if random.random() < accuracy else _elsewhere(part, level, random.normal(mean, deviation), random)
            for part in PerfectTeacher().subgoals(level)
        ]

    def close(self) -> None:
        """Does nothing."""

    def _another_thing(self, subgoal: Subgoal, level: Level, random: np.random.Generator, accuracy: float) -> Subgoal:
        others = [thing for thing in level.things if Subgoal.of(thing) != subgoal]
        if random.random() < accuracy or not others:
            return subgoal
        return Subgoal.of(others[random.integers(len(others))])


def _elsewhere(subgoal: Subgoal, level: Level, distance: float, random: np.random.Generator) -> Subgoal:
    """Returns a cell of the grid at that Manhattan distance, at least 1, or at the largest that there is below it.

    Differs from the authors' code, which draws offsets to the right alone: all cells at the distance are as likely.
    """
    x, y = subgoal.place
    for apart in range(max(1, round(distance)), 0, -1):
        ring = [(x + dx, y + sign * (apart - abs(dx))) for dx in range(-apart, apart + 1) for sign in (-1, 1)]
        inside = sorted({(i, j) for i, j in ring if 0 <= i < level.width and 0 <= j < level.height})
        if inside:
            place = inside[random.integers(len(inside))]
            thing = level.by_place.get(place)
            return Subgoal(place) if thing is None else Subgoal.of(thing)
    return subgoal
