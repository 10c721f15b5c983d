"""How much the programs of one round differ: a population of near copies searches nothing."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

import numpy as np

from robo_rl.rewards.programs.program import RewardProgram

LEAST = 0.1
"""Mean distance below which a population counts as collapsed; programs that differ in one constant are about 0.02 apart."""


@dataclass(frozen=True)
class Diversity:
    """Of the programs of one round."""

    programs: int
    distinct: int
    """With different syntax trees."""
    distance: float
    """Mean over pairs: 0 the same, 1 nothing in common; nan below two programs."""

    @property
    def is_collapsed(self) -> bool:
        """Whether the round tried little more than one idea."""
        return self.programs > 1 and (self.distinct == 1 or self.distance < LEAST)

    def __str__(self) -> str:
        apart = "" if np.isnan(self.distance) else f", mean distance {self.distance:.2f}"
        return f"{self.distinct} of {self.programs} programs are different{apart}"


def diversity(programs: Sequence[RewardProgram]) -> Diversity:
    """Returns the share of the syntax trees of two programs that differs, in the mean over all pairs."""
    leaves = [_leaves(program.source) for program in programs]
    distances = [1 - SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in combinations(leaves, 2)]
    distance = float(np.mean(distances)) if distances else float("nan")
    return Diversity(len(programs), len({program.hash for program in programs}), distance)


def _leaves(source: str) -> list[str]:
    """Returns the syntax tree in order: kinds of nodes, names and constants."""
    found = []
    for node in ast.walk(ast.parse(source)):
        word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
        found.append(f"{type(node).__name__} {word if isinstance(word, str | int | float) else ''}")
    return found
