"""robo-rl published: an experiment beside scores that others published, as a table and curves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.experiments.archive import require_own
from robo_app.experiments.archived import updated
from robo_app.experiments.plan import read_plan
from robo_app.experiments.published_scores import read_scores
from robo_app.experiments.published_table import Compared, draw_published, own_curves, published_page
from robo_app.experiments.race import Race
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import write_text

EXAMPLES = """robo-rl published dmc-states --out experiments/dmc-states --scores scores"""
VARIABLE = "ROBO_RL_REFERENCE_DATA"


@dataclass(frozen=True)
class PublishedOrder:
    """Compare an experiment with published scores at the same number of environment steps."""

    plan: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PLAN")]
    """Name of an experiment with published scores, or a YAML file."""
    out: Path
    """Folder of its results; published.md and published.png are added."""
    archive: Path | None = None
    """Archive of the trainings; by default OUT/archive.json. Trainings that have finished in OUT since are added."""
    scores: Path | None = None
    """Folder of the score files; by default `scores` in the folder that ROBO_RL_REFERENCE_DATA names."""


def run(arguments: PublishedOrder) -> int:
    """Write and print the table of the finished trainings, and draw the curves."""
    plan, out = read_plan(arguments.plan), arguments.out
    if not isinstance(plan, Race) or plan.published is None:
        raise InvalidSetting(
            f"The experiment {plan.name} names no published scores.",
            got="no `published` in the plan",
            allowed="such as dmc-states",
        )
    theirs = read_scores(_folder(arguments.scores), plan.published.suite)
    out.mkdir(parents=True, exist_ok=True)
    archive = updated(require_own(arguments.archive or out / "archive.json", plan.name), plan, out)
    compared = Compared(plan, plan.published, own_curves(plan, archive.records, plan.published.by), theirs)
    page = published_page(compared)
    write_text(out / "published.md", page)
    print(f"{page}\ncurves   {draw_published(compared, out / 'published.png')}")
    return 0


def _folder(given: Path | None) -> Path:
    if given is not None:
        return given
    if not (data := os.environ.get(VARIABLE)):
        raise InvalidSetting(
            "The folder of the score files is not known.",
            got=f"no --scores, and {VARIABLE} is not set",
            allowed="a folder with dmc_proprio-ddpg.json.gz and the like",
            fix="docs/training/foreign-measures.md says where they are",
        )
    return Path(data) / "scores"
