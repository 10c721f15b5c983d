"""robo-rl experiment: train methods with several seeds, and write the table; resumable.

A training whose settings or episodes have changed is repeated; a source, a dataset, and the recipe of a
race are never replaced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.learning_curves import draw_curves
from robo_app.experiments.plan import read_plan
from robo_app.experiments.race import Race
from robo_app.experiments.race_table import race_facts, race_page
from robo_app.experiments.tables import study_facts, study_page
from robo_app.jobs.jobs import run_jobs
from robo_app.jobs.trainings import train_all
from robo_app.recipes.recipe import require_at_least
from robo_rl.runs.run import write_text

EXAMPLES = """robo-rl experiment offline --out experiments/offline
robo-rl experiment my-plan.yaml --out experiments/mine --table
robo-rl experiment beacons --out experiments/beacons --jobs 2"""


@dataclass(frozen=True)
class ExperimentOrder:
    """Train several methods, on several datasets or tasks, with several seeds, and compare them; resumable."""

    plan: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PLAN")]
    """Name of an experiment that comes with the package, or a YAML file."""
    out: Path
    """Folder of all results; those present are kept."""
    jobs: int = 1
    """Trainings at once, one thread each."""
    table: bool = False
    """Only write the table of finished trainings."""

    def __post_init__(self) -> None:
        require_at_least(self, {"jobs": 1})


def run(arguments: ExperimentOrder) -> int:
    """Make the missing inputs, stage by stage, then train one seed of each method before the next; print the table."""
    plan, out = read_plan(arguments.plan), arguments.out
    if not arguments.table:
        for jobs in plan.preparations(out):
            run_jobs(f"experiment {plan.name}", jobs, out / "logs", at_once=arguments.jobs)
    trainings = plan.trainings(out)
    if not arguments.table:
        train_all(f"experiment {plan.name}", trainings.values(), out, at_once=arguments.jobs)
    runs = {cell: found for cell, training in trainings.items() if (found := training.finished) is not None}
    if isinstance(plan, Race):
        facts = race_facts(plan, runs)
        page = race_page(facts)
    else:
        facts = study_facts(plan, runs, plan.made(out))
        page = study_page(facts)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.json", json.dumps(facts, indent=1))
    write_text(out / "table.md", page)
    print(page)
    if isinstance(plan, Race) or not plan.datasets:
        by_method = {method: [run for (name, *_), run in runs.items() if name == method] for method in plan.methods}
        draw_curves(by_method, out / "curves.png")
    return 0
