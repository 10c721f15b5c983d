"""robo-rl papers: list the papers that are installed, or say what one of them brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_app.listings.levels import Row, by_level, evidence_of_paper
from robo_app.listings.purposes import purpose
from robo_rl.errors import UnknownName
from robo_rl.papers import Paper, papers

EXAMPLES = "robo-rl papers\nrobo-rl papers oer     (its learners, rewards, recipes, page and study)"


@dataclass(frozen=True)
class Papers:
    """List papers, each of which is a folder of an installed package, or say what one brings."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PAPER")] = ""
    """One paper; empty for all."""


def run(arguments: Papers) -> int:
    """Print names with their summaries, or all about one."""
    found = papers()
    if arguments.name:
        if arguments.name not in found:
            raise UnknownName("paper", arguments.name, found, fix="docs/extending/adding-a-paper.md shows how to add one")
        print("\n".join(_description(found[arguments.name])))
        return 0
    print("\n".join(by_level(Row(name, evidence_of_paper(paper), paper.summary) for name, paper in found.items())))
    print("\n`robo-rl papers PAPER` says what one brings.")
    return 0


def _description(paper: Paper) -> list[str]:
    """Return the lines about a paper."""
    lines = [f"{paper.title}", f"{paper.summary}", *([paper.source] if paper.source else []), f"of {paper.distribution}"]
    lines += [str(evidence_of_paper(paper)), ""]
    for group in paper.components:
        lines += [f"{group.removesuffix('s'):12} {point.name:24} {purpose(group, point)}" for point in paper.points(group)]
    lines += [f"recipe       {name:24} robo-rl train {name}" for name in paper.recipes]
    lines += [f"plan         {name:24} robo-rl experiment {name}" for name in paper.plans]
    lines += [f"pack         {name:24} --llm pack:{name}" for name in paper.packs]
    lines += [f"study        python -m {paper.study}"] if paper.study else []
    return [*lines, f"page         {paper.page}"] if paper.page else lines
