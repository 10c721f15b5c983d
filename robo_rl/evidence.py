"""Evidence for methods: how far each was shown to work, in one sentence, with the study that shows it.

A paper states it in its `paper.toml`, the kernel in `evidence.toml` beside this module:

    [evidence.learners.rwr]                 # [learners.rwr] in evidence.toml
    level = "proven"
    sentence = "Reaches 61 points where cloning reaches 26, and 11 with shuffled rewards (3 seeds)."
    study = "labels"
    baseline = {better = "iql", than = "bc", on = "reach-play"}
    control = {better = "iql", than = "iql-shuffled", on = "reach-play"}

Listing reads these files and imports no method. A component that states nothing is experimental.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from robo_rl.errors import InvalidSetting
from robo_rl.papers import papers

LEVELS = ("proven", "validated", "experimental")
"""Levels of evidence, from the most to the least."""
FILE = Path(__file__).with_name("evidence.toml")


@dataclass(frozen=True)
class Order:
    """Claim about a study that can be checked: the method `better` reaches more than the method `than`, by one measure."""

    better: str
    than: str
    on: str = ""
    """Dataset or task; "" if the study has none."""
    by: str = "return"
    """What is compared: "return", "success", or the name of a measure or figure of the study."""
    fewer: bool = False
    """True if a lower value of the measure is better."""
    share: float = 1.0
    """Share of the other method's value that is to be exceeded, such as 0.9 for nine tenths."""


@dataclass(frozen=True)
class Evidence:
    """How far a method was shown to work: level, one sentence, and the study, control and tests that show it."""

    level: str = "experimental"
    """proven: in an archived study with three seeds or more it beats its baseline, and its control without the key part.
    validated: exact properties hold in tests, or it is not below its baseline in such a study. experimental: the rest."""
    sentence: str = "No evidence stated."
    """One sentence for lists, with its figures."""
    template: str = ""
    """The sentence with {FIGURE} in the place of each figure that is read from the archived study; empty if it has none."""
    study: str = ""
    """Name of the archived study in docs/benchmarks."""
    baseline: Order | None = None
    control: Order | None = None
    """Claim that the method beats the same method without its key part; None without such a control."""
    tests: tuple[str, ...] = ()
    """Tests of exact properties, as FILE::TEST."""
    page: str = ""
    """Page of the documentation; of a paper, its own."""

    @property
    def rank(self) -> int:
        """Place of the level in `LEVELS`, from 0 for proven to 2 for experimental."""
        return LEVELS.index(self.level)

    def __str__(self) -> str:
        return f"{self.level}: {self.sentence}"


NONE = Evidence()


def evidence_of(group: str, name: str) -> Evidence:
    """Return the evidence of a component; `NONE` if none is stated. Raises InvalidSetting if the statement is malformed."""
    return statements().get((group, name), NONE)


def statements() -> dict[tuple[str, str], Evidence]:
    """Return (group, name) -> evidence of all components that papers and robo_rl itself make statements about."""
    return dict(_statements(tuple(sys.path)))


@lru_cache(maxsize=8)
def _statements(path: tuple[str, ...]) -> dict[tuple[str, str], Evidence]:
    """Return what `statements` returns, read again if `sys.path` has changed, as `papers` does."""
    found = _read(tomllib.loads(FILE.read_text(encoding="utf-8")), str(FILE))
    for paper in papers().values():
        found |= _read(paper.evidence, str(paper.folder / "paper.toml"))
    return found


def _read(declared: Mapping[str, Mapping[str, Mapping[str, Any]]], source: str) -> dict[tuple[str, str], Evidence]:
    return {
        (group, name): _evidence(values, f"{source}: evidence of {group}.{name}")
        for group, named in declared.items()
        for name, values in named.items()
    }


def _evidence(values: Mapping[str, Any], what: str) -> Evidence:
    try:
        orders = {key: Order(**values[key]) for key in ("baseline", "control") if key in values}
        found = Evidence(**{**values, **orders, "tests": tuple(values.get("tests", ()))})
    except TypeError as error:
        allowed = ", ".join(each.name for each in fields(Evidence))
        raise InvalidSetting(f"{what} cannot be read.", got=error, allowed=allowed) from None
    if found.level not in LEVELS:
        raise InvalidSetting(f"{what} has an unknown level.", got=found.level, allowed=", ".join(LEVELS))
    return found
