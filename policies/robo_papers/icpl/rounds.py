"""Rounds of a search for a reward program: their candidates, how much these differ, and what was chosen."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

import numpy as np

from robo_papers.icpl.candidates import TrainedCandidate, commonest_failure
from robo_rl.rewards.programs.program import RewardProgram

LEAST = 0.1
"""Mean distance of programs below which a round counts as collapsed; programs that differ in one constant are about 0.02
apart."""


@dataclass(frozen=True)
class Diversity:
    """Measures of how much the programs of one round differ."""

    programs: int
    distinct: int
    """Number of different syntax trees among the programs of the round."""
    distance: float
    """Mean distance over pairs of programs: 0 for equal ones, 1 for nothing in common; NaN for fewer than two programs."""

    @property
    def is_collapsed(self) -> bool:
        """True if the round tried little more than one idea."""
        return self.programs > 1 and (self.distinct == 1 or self.distance < LEAST)

    def __str__(self) -> str:
        apart = "" if np.isnan(self.distance) else f", mean distance {self.distance:.2f}"
        return f"{self.distinct} of {self.programs} programs are different{apart}"


def diversity(programs: Sequence[RewardProgram]) -> Diversity:
    """Measure how much programs differ: the share of two syntax trees that differs, in the mean over all pairs."""
    leaves = [_leaves(program.source) for program in programs]
    distances = [1 - SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in combinations(leaves, 2)]
    distance = float(np.mean(distances)) if distances else float("nan")
    return Diversity(len(programs), len({program.hash for program in programs}), distance)


def _leaves(source: str) -> list[str]:
    """Return the syntax tree in order: kinds of nodes, names and constants."""
    found = []
    for node in ast.walk(ast.parse(source)):
        word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
        found.append(f"{type(node).__name__} {word if isinstance(word, str | int | float) else ''}")
    return found


@dataclass(frozen=True)
class Round:
    """Result of one round of a search: its candidates, the best, the worst, and the best of all rounds so far."""

    number: int
    """Number of the round, from 1."""
    candidates: tuple[TrainedCandidate, ...]
    diversity: Diversity
    incumbent: TrainedCandidate | None
    """Best candidate of all rounds so far."""
    best: TrainedCandidate | None = None
    """Best candidate of this round."""
    worst: TrainedCandidate | None = None
    """Worst candidate of this round, if the method chooses one."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        number: int,
        candidates: Iterable[TrainedCandidate],
        incumbent: TrainedCandidate | None,
        **chosen: TrainedCandidate | None,
    ) -> Round:
        """Return a finished round, with warnings about its candidates."""
        all_of_them = tuple(candidates)
        found = diversity([each.program for each in all_of_them if each.program is not None])
        return cls(number, all_of_them, found, incumbent, warnings=tuple(_warnings(all_of_them, found)), **chosen)


def _warnings(candidates: tuple[TrainedCandidate, ...], found: Diversity) -> Iterator[str]:
    if found.is_collapsed:
        yield f"the programs are nearly the same ({found}): raise the temperature, or change the task sentence"
    failure = commonest_failure(candidates)
    if failure is not None and not any(each.outcome is not None and not each.outcome.failure for each in candidates):
        yield f"no program could be used; the commonest error ({failure[1]} of {len(candidates)}): {failure[0].reason}"
