"""Comparisons of policies that were trained with different reward programs; best and worst of several by few comparisons."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from robo_papers.icpl.candidates import TrainedCandidate
from robo_rl.errors import require_allowed
from robo_rl.rewards.identity import NamedSettings
from robo_rl.rewards.preferences.raters import Preference, Rater, Segment
from robo_rl.types import Episode


class Comparer(Protocol):
    """Interface of what compares the policies of two trained candidates."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the comparer, and a hash of everything that its answers follow from."""

    def compare(self, first: TrainedCandidate, second: TrainedCandidate) -> Preference:
        """Compare two policies: return 0 if the first is better, 1 if the second, 0.5 if equal, "skip" if undecided."""


@dataclass(frozen=True)
class OracleComparer(NamedSettings):
    """Comparer that prefers the greater declared success, with a set error rate; replaces a person in experiments."""

    name: ClassVar[str] = "oracle"

    mistakes: float = 0.0
    """Share of decided answers that are reversed, 0 to 1."""
    seed: int = 0
    """Seed of the reversed answers."""

    def __post_init__(self) -> None:
        require_allowed(self, {"mistakes": (0 <= self.mistakes <= 1, "0 to 1"), "seed": (self.seed >= 0, "0 or more")})

    def compare(self, first: TrainedCandidate, second: TrainedCandidate) -> Preference:
        """Compare the success of two policies: 0 if the first has more, 1 if the second, 0.5 if equal.

        A share of the answers is reversed.
        """
        if first.merit == second.merit:
            return 0.5
        is_wrong = _chance(self.seed, first, second) < self.mistakes
        return float((second.merit > first.merit) != is_wrong)


@dataclass(frozen=True)
class ChanceComparer(NamedSettings):
    """Comparer that prefers either policy at random: the control for the value of choosing."""

    name: ClassVar[str] = "chance"

    seed: int = 0
    """Seed of the draw."""

    def compare(self, first: TrainedCandidate, second: TrainedCandidate) -> Preference:
        """Return 0 or 1 at random, the same at every call for the same candidates."""
        return float(_chance(self.seed, first, second) < 0.5)


class RaterComparer:
    """Comparer that shows a rater (a person or a vision model) episodes of both policies from the same starts."""

    def __init__(self, rater: Rater, episodes: Callable[[TrainedCandidate], Sequence[Episode]]) -> None:
        """episodes: of a candidate's policy, with the pictures that the rater looks at; as many for each, in the same order."""
        self._rater, self._episodes = rater, episodes

    @property
    def identity(self) -> tuple[str, str]:
        """Identity of the rater that is asked: name and hash."""
        return self._rater.identity

    def compare(self, first: TrainedCandidate, second: TrainedCandidate) -> Preference:
        """Return the majority over the pairs of episodes; "skip" if none is decided."""
        pairs = zip(self._episodes(first), self._episodes(second), strict=True)
        answers = [self._rater.compare(_whole(one), _whole(other)) for one, other in pairs]
        decided = [answer for answer in answers if answer != "skip"]
        if not decided:
            return "skip"
        return 0.5 + 0.5 * float(np.sign(np.mean(decided) - 0.5))


class KeptComparer:
    """Comparer that repeats no comparison: each answer is in a file before it is used."""

    def __init__(self, comparer: Comparer, path: Path) -> None:
        self._comparer, self._path = comparer, path
        self.identity = comparer.identity
        self._known: dict[tuple[str, ...], Preference] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            found = json.loads(line)
            self._known[tuple(found["compared"])] = found["answer"]

    def compare(self, first: TrainedCandidate, second: TrainedCandidate) -> Preference:
        """Return the kept answer; compare and keep it if there is none."""
        key = (*self.identity, _name(first), _name(second))
        if key not in self._known:
            self._known[key] = self._comparer.compare(first, second)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"compared": key, "answer": self._known[key]}) + "\n")
        return self._known[key]


def preferred(
    comparer: Comparer, first: TrainedCandidate, second: TrainedCandidate
) -> tuple[TrainedCandidate, TrainedCandidate]:
    """Return the better and the worse of two candidates; the first counts as better if they are equal or undecided."""
    return (second, first) if comparer.compare(first, second) == 1.0 else (first, second)


def extremes(comparer: Comparer, candidates: Sequence[TrainedCandidate]) -> tuple[TrainedCandidate, TrainedCandidate]:
    """Return the best and the worst of one or more candidates, with at most 3/2 comparisons per candidate.

    They are compared in pairs first; the best is among the winners, the worst among the losers.
    """
    winners, losers = [], []
    for first, second in zip(candidates[::2], candidates[1::2], strict=False):
        better, worse = preferred(comparer, first, second)
        winners.append(better)
        losers.append(worse)
    if len(candidates) % 2:
        winners.append(candidates[-1])
        losers.append(candidates[-1])
    best, worst = winners[0], losers[0]
    for challenger in winners[1:]:
        best, _ = preferred(comparer, best, challenger)
    for challenger in losers[1:]:
        _, worst = preferred(comparer, worst, challenger)
    return best, worst


def _whole(episode: Episode) -> Segment:
    return Segment(episode, 0, len(episode))


def _chance(seed: int, first: TrainedCandidate, second: TrainedCandidate) -> float:
    """Return a number from 0 to 1 that follows from two programs and a seed alone."""
    content = f"{_name(first)} {_name(second)}".encode()
    return float(np.random.default_rng([seed, *hashlib.sha256(content).digest()]).random())


def _name(candidate: TrainedCandidate) -> str:
    return "none" if candidate.program is None else candidate.program.hash
