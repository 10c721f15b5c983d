"""Changes that a user asks for when foreign data are imported: scales, clipped actions, turned pictures, a kept last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from robo_datasets.formats.recording import Array
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec

ALL = "all"
"""Name that stands for all elements of an action, or for all cameras."""
Turn = Literal["90", "180", "270", "upside-down", "mirrored"]
"""Degrees clockwise, or the axis of a reflection: top and bottom, left and right."""


@dataclass(frozen=True)
class Adjustments:
    """Changes of foreign data at their import; none by default."""

    action_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Element of the action, or "all" -> the two foreign values that become -1 and 1; the first may be the greater."""
    clip: bool = False
    """Clip the executed actions to [-1, 1]; the values of the file are kept as the proposed actions."""
    observation_scales: Mapping[str, float] = field(default_factory=dict)
    """Observation -> factor by which its values are multiplied, not 0."""
    turns: Mapping[str, Turn] = field(default_factory=dict)
    """Camera, or "all" -> rotation of its pictures: degrees clockwise, upside-down or mirrored."""
    keep_last: bool = False
    """Keep the last step of a truncated episode whose last observation is missing; the one before is repeated in its place."""

    @property
    def is_none(self) -> bool:
        """True if nothing is changed."""
        return self == Adjustments()

    def require_known(self, spec: EnvironmentSpec) -> None:
        """Check the adjustments against the spec of the data.

        Raises:
            UnknownName: An action, observation or camera is not in the spec.
            InvalidSetting: A range has no width, a scale is 0, or a number is not finite.
        """
        cameras = spec.observation.subset("image")
        actions = () if spec.action.is_discrete else (ALL, *spec.action.names)
        _require("action", self.action_ranges, actions)
        _require("observation", self.observation_scales, [name for name in spec.observation if name not in cameras])
        _require("camera", self.turns, (ALL, *cameras))
        for name, (first, last) in self.action_ranges.items():
            if not np.isfinite([first, last]).all() or first == last:
                raise InvalidSetting(
                    f"The range of action {name!r} is none.", got=(first, last), allowed="two different numbers"
                )
        for name, scale in self.observation_scales.items():
            if not np.isfinite(scale) or scale == 0:
                raise InvalidSetting(f"The scale of observation {name!r} is none.", got=scale, allowed="a number, not 0")

    def limits(
        self, names: Sequence[str], low: Sequence[float], high: Sequence[float]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return which values of a foreign action become -1 and which become 1, for each element of the action.

        Args:
            names: Elements of the action.
            low: (A,) Foreign values that become -1, where `action_ranges` has none; empty for -1 itself.
            high: (A,) Foreign values that become 1, where `action_ranges` has none; empty for 1 itself.

        Returns:
            (A,) the foreign values that become -1, and (A,) those that become 1.
        """
        if not self.action_ranges:
            return tuple(low), tuple(high)
        ends = zip(low or (-1.0,) * len(names), high or (1.0,) * len(names), strict=True)
        found = [self.range_of(name, end) for name, end in zip(names, ends, strict=True)]
        return tuple(first for first, _ in found), tuple(last for _, last in found)

    def range_of(self, name: str, otherwise: tuple[float, float]) -> tuple[float, float]:
        """Return the foreign values of an element of the action that become -1 and 1; `otherwise` if no range is given."""
        return self.action_ranges.get(name, self.action_ranges.get(ALL, otherwise))

    def has_range(self, name: str) -> bool:
        """Return True if a range is given for an element of the action."""
        return name in self.action_ranges or ALL in self.action_ranges

    def scaled(self, name: str, values: Array) -> Array:
        """Return the values of the observation `name`, multiplied by its factor if there is one."""
        return values if (scale := self.observation_scales.get(name)) is None else values * np.float64(scale)

    def turned(self, array: ArraySpec, values: Array) -> Array:
        """Return the pictures (T, H, W, C) of a camera, turned as the user asks; other observations as they are."""
        return values if array.role != "image" else turned(values, self._turn(array.name))

    def spec_of(self, observation: ObservationSpec) -> ObservationSpec:
        """Return the spec of the observations after the turns."""
        return ObservationSpec(tuple(map(self._turned_spec, observation.values())))

    def lines(self) -> list[str]:
        """Return a line of text for each change."""
        found = [
            f"action {name}: {first:g} becomes -1, {last:g} becomes 1" for name, (first, last) in self.action_ranges.items()
        ]
        found += [f"observation {name} is multiplied by {scale:g}" for name, scale in self.observation_scales.items()]
        words = {"upside-down": "turned upside down", "mirrored": "mirrored"}
        return found + [
            f"pictures of {name} are {words.get(turn, f'turned by {turn} degrees')}" for name, turn in self.turns.items()
        ]

    def _turn(self, name: str) -> Turn | None:
        return self.turns.get(name, self.turns.get(ALL))

    def _turned_spec(self, array: ArraySpec) -> ArraySpec:
        if array.role != "image" or self._turn(array.name) not in ("90", "270"):
            return array
        height, width, *rest = array.shape
        return replace(array, shape=(width, height, *rest))


NONE = Adjustments()


def turned(pictures: Array, turn: Turn | None) -> Array:
    """Return pictures (T, H, W, C) turned clockwise, or reflected."""
    if turn is None:
        return pictures
    if turn in ("upside-down", "mirrored"):
        return np.ascontiguousarray(np.flip(pictures, axis=1 if turn == "upside-down" else 2))
    return np.ascontiguousarray(np.rot90(pictures, -int(turn) // 90, axes=(1, 2)))


def _require(kind: str, names: Mapping[str, object], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownName(f"{kind} of the data", name, known)
