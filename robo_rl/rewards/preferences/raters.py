"""Raters, which decide which of two segments of episodes is better."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np

from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.rewards.identity import NamedSettings
from robo_rl.types import Episode

Preference = float | Literal["skip"]
"""0 if the first segment is better, 1 if the second is better, 0.5 if they are equal, "skip" if the rater cannot tell."""


@dataclass(frozen=True)
class Segment:
    """Part of an episode that raters compare: its steps from number `start` to before `stop`."""

    episode: Episode
    start: int
    stop: int


class Rater(Protocol):
    """Interface of raters, which decide which of two segments is better; the fields of the class are its settings."""

    @property
    def kind(self) -> Literal["human", "model", "oracle"]:
        """Kind of rater: a person, a model, or a rule that reads recorded values."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the rater, and a hash of everything that its answers depend on."""

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Return which segment is better: 0 for the first, 1 for the second, 0.5 for equal, "skip" if unknown."""


@dataclass(frozen=True)
class OracleRater(NamedSettings):
    """Rater that prefers the segment with the larger sum of recorded rewards, with a set error rate."""

    name: ClassVar[str] = "oracle"
    kind: ClassVar[Literal["oracle"]] = "oracle"

    mistakes: float = 0.0
    """Share of decided answers that are reversed, 0 to 1."""
    margin: float = 0.0
    """Largest difference of the sums of rewards at which two segments count as equal; 0 or more."""
    seed: int = 0
    """Seed of the mistakes."""

    def __post_init__(self) -> None:
        allowed = {"mistakes": (0 <= self.mistakes <= 1, "0 to 1"), "margin": (self.margin >= 0, "0 or more")}
        require_allowed(self, allowed | {"seed": (self.seed >= 0, "0 or more")})

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Compare two segments: 0 if the first has the larger sum of rewards, 1 if the second, 0.5 if equal.

        Returns "skip" if a recorded reward is not finite.
        """
        sums = [float(part.episode.rewards[part.start : part.stop].sum(dtype=np.float64)) for part in (first, second)]
        difference = sums[1] - sums[0]
        if not np.isfinite(difference):
            return "skip"
        if abs(difference) <= self.margin:
            return 0.5
        content = b"".join(part.episode.timestamps.tobytes() + bytes(str(part.start), "ascii") for part in (first, second))
        chance = np.random.default_rng([self.seed, *hashlib.sha256(content).digest()])
        is_wrong = chance.random() < self.mistakes
        return float((difference > 0) != is_wrong)


_MEASURE = re.compile(r"(-?)(return|length|terminated|success|(mean|peak|last) ([a-z_0-9]+)(\[(\d+)\])?)(~([0-9.eE+-]+))?")


@dataclass(frozen=True)
class Measure:
    """A number computed from a segment, such as its length, by which segments are compared."""

    text: str
    """[-]NAME[~DIFFERENCE]. NAME is return, length, terminated, success, or "mean", "peak" or "last" and an observation entry,
    such as "-peak tool_force~2" or "last object_position[2]". With - less is better. A difference up to DIFFERENCE counts as
    none."""

    def __post_init__(self) -> None:
        if not _MEASURE.fullmatch(self.text):
            allowed = (
                "return, length, terminated, success, mean ENTRY, peak ENTRY, last ENTRY; before it -, after it ~DIFFERENCE"
            )
            raise InvalidSetting("A measure is not known.", got=self.text, allowed=allowed)

    def of(self, segment: Segment) -> float:
        """Return the value for a segment, negated if less is better; raises UnknownName for an unknown entry."""
        sign, name, kind, entry, _, index, _, _ = self._parts
        return (-1.0 if sign else 1.0) * self._value(segment, name, kind, entry, index)

    @property
    def margin(self) -> float:
        """Largest difference at which two segments count as equal."""
        return float(self._parts[-1] or 0.0)

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        found = _MEASURE.fullmatch(self.text)
        assert found is not None
        return tuple(part or "" for part in found.groups())

    def _value(self, segment: Segment, name: str, kind: str, entry: str, index: str) -> float:
        episode = segment.episode
        is_end = segment.stop == len(episode)
        if not kind:
            return {
                "return": float(episode.rewards[segment.start : segment.stop].sum(dtype=np.float64)),
                "length": float(segment.stop - segment.start),
                "terminated": float(is_end and episode.terminated),
                "success": float(is_end and episode.success is True),
            }[name]
        if entry not in episode.observations:
            raise UnknownName("entry of the observations", entry, episode.observations)
        values = np.asarray(episode.observations[entry], np.float64)[segment.start + 1 : segment.stop + 1]
        values = values.reshape(len(values), -1)
        if index and int(index) >= values.shape[1]:
            raise InvalidSetting("An entry has fewer numbers.", got=self.text, allowed=f"{entry}[0] to [{values.shape[1] - 1}]")
        sizes = values[:, int(index)] if index else np.linalg.norm(values, axis=1)
        return float({"mean": sizes.mean(), "peak": sizes.max(), "last": sizes[-1]}[kind])


@dataclass(frozen=True)
class MeasuresRater(NamedSettings):
    """Rater that compares two segments by several measures, such as success, then time, then force."""

    name: ClassVar[str] = "measures"
    kind: ClassVar[Literal["oracle"]] = "oracle"

    measures: tuple[str, ...] = ("terminated", "-length")
    """List of [-]NAME[~DIFFERENCE]. NAME is return, length, terminated, success, or mean, peak or last and an observation
    entry, such as "-peak tool_force~2" or "last object_position[2]". With - less is better. A difference up to DIFFERENCE
    counts as none."""
    rule: Literal["first", "majority"] = "first"
    """first: the first measure that differs decides; majority: the segment that is better in more measures, which may be
    intransitive."""

    def __post_init__(self) -> None:
        require_allowed(self, {"measures": (bool(self.measures), "one or more")})
        _ = self._measures

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Compare two segments: 0 if the first is better, 1 if the second, 0.5 for no difference or a tie.

        Returns "skip" if a measure is not finite.
        """
        signs = []
        for measure in self._measures:
            difference = measure.of(second) - measure.of(first)
            if not np.isfinite(difference):
                return "skip"
            signs.append(0.0 if abs(difference) <= measure.margin else float(np.sign(difference)))
        decided = next((sign for sign in signs if sign), 0.0) if self.rule == "first" else float(np.sign(sum(signs)))
        return 0.5 + 0.5 * decided

    @cached_property
    def _measures(self) -> tuple[Measure, ...]:
        return tuple(map(Measure, self.measures))
