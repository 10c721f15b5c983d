"""robo-rl experiment: train methods with several seeds, and write the table; resumable.

A training whose settings or episodes have changed is repeated; a source, a dataset, and the recipe of a
race are never replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.learning_curves import draw
from robo_app.experiments.archive import Archive, require_own
from robo_app.experiments.archived import archived, curves_of, missing_lines, page_of, updated
from robo_app.experiments.plan import read_plan
from robo_app.jobs.jobs import run_jobs
from robo_app.jobs.trainings import train_all
from robo_app.recipes.recipe import require_at_least
from robo_rl.runs.run import write_text
from robo_rl.system.durable_files import locked_folder

EXAMPLES = """robo-rl experiment offline --out experiments/offline
robo-rl experiment my-plan.yaml --out experiments/mine --table
robo-rl experiment offline --out experiments/offline --archive docs/benchmarks/offline.json
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
    archive: Path | None = None
    """Archive to add to: a training that it holds with the same settings counts as finished. By default a new one,
    OUT/archive.json."""

    def __post_init__(self) -> None:
        require_at_least(self, {"jobs": 1})


def run(arguments: ExperimentOrder) -> int:
    """Make the missing inputs, stage by stage, then train one seed of each method before the next; print the table."""
    plan, out = read_plan(arguments.plan), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    known = archived(_kept(arguments, plan.name), plan, out)
    try:
        if not arguments.table and len(known) < len([*plan.cells()]):
            for jobs in plan.preparations(out):
                run_jobs(f"experiment {plan.name}", jobs, out / "logs", at_once=arguments.jobs)
            known = archived(_kept(arguments, plan.name), plan, out)
            missing = [training for cell, training in plan.trainings(out).items() if cell not in known]
            train_all(f"experiment {plan.name}", missing, out, at_once=arguments.jobs)
    finally:  # finished trainings count, whatever else failed
        file = arguments.archive or out / "archive.json"
        with locked_folder(file.parent):  # another process may add at the same time
            archive = updated(_kept(arguments, plan.name), plan, out)
            archive.write(file)
    page = page_of(archive)
    write_text(out / "table.md", page)
    print("\n".join([page, *missing_lines(archive, plan), f"archive  {file}"]))
    draw(curves_of(archive), out / "curves.png")
    return 0


def _kept(arguments: ExperimentOrder, study: str) -> Archive | None:
    """Return the archive that is added to, None if there is none yet; raises RunError if it is of another study."""
    return None if arguments.archive is None else require_own(arguments.archive, study)
