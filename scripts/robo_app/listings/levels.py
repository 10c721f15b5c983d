"""Lists of components by level of evidence, proven ones first, made without importing the components."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from robo_app.listings.purposes import purpose
from robo_rl.entry_points import known
from robo_rl.evidence import LEVELS, NONE, Evidence, evidence_of
from robo_rl.papers import Group, Paper

WIDTH = 24


class Row(NamedTuple):
    """Component in a list by level of evidence: its name, level and purpose."""

    name: str
    evidence: Evidence
    text: str
    """Purpose of the component, in one line."""
    more: tuple[str, ...] = ()
    """Further lines under it."""


def by_level(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of a list: a heading for each level of evidence, and the entries with the sentence of their evidence."""
    rows = [*rows]
    for level in LEVELS:
        found = sorted((row for row in rows if row.evidence.level == level), key=lambda row: row.name)
        if found:
            yield from ([""] if level != min(rows, key=lambda row: row.evidence.rank).evidence.level else [])
            yield f"{level} ({len(found)})"
        for row in found:
            yield f"{row.name:{WIDTH}} {row.text}"
            yield from (f"{'':{WIDTH}} {line}" for line in (row.evidence.sentence, *row.more))


def components(group: Group) -> list[Row]:
    """Return all components of a group of entry points."""
    return [Row(name, evidence_of(group, name), purpose(group, point)) for name, point in known(group).items()]


def weakest_of(learner: str, reward: str) -> Evidence:
    """Return the evidence of a recipe: the weaker one of its learner and its reward.

    reward: name of a reward model; "" for the environment's own reward, which needs no evidence.
    """
    found = [evidence_of("learners", learner), *([evidence_of("rewards", reward)] if reward else [])]
    return max(found, key=lambda evidence: evidence.rank)


def evidence_of_paper(paper: Paper) -> Evidence:
    """Return the evidence of a paper: its own if it has some, else the best of its components, else `NONE`."""
    own = evidence_of("papers", paper.name)
    if own is not NONE:
        return own
    found = [evidence_of(group, name) for group, named in paper.components.items() for name in named]
    return min((each for each in found if each is not NONE), key=lambda each: each.rank, default=NONE)


def about(group: Group, name: str, paper: Paper | None) -> list[str]:
    """Return lines about a component: purpose, evidence, study and page.

    paper: paper to which the component belongs, for its page; None for a component of the kernel.
    """
    evidence = evidence_of(group, name)
    lines = [f"{name}: {purpose(group, known(group)[name])}", str(evidence)]
    lines += [f"study  docs/benchmarks/{evidence.study}"] if evidence.study else []
    page = evidence.page or (str(paper.page) if paper is not None and paper.page else "")
    return [*lines, f"page   {page}"] if page else lines
