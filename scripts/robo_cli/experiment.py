"""robo-rl experiment, also as study and race: train methods with several seeds, and write the table; resumable.

A training whose settings or episodes have changed is repeated; a source, a dataset, and the recipe of a
race are never replaced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import pydantic
import tyro

from robo_cli.curves import draw_curves
from robo_cli.experiment_race import Race
from robo_cli.experiment_study import Study
from robo_cli.experiment_tables import study_facts, study_page
from robo_cli.jobs import run_jobs
from robo_cli.race_table import race_facts, race_page
from robo_cli.recipe import require_at_least
from robo_cli.trainings import train_all
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.runs.run import write_text
from robo_rl.system.plain_files import read_yaml

EXAMPLES = """robo-rl experiment offline --out experiments/offline
robo-rl experiment my-plan.yaml --out experiments/mine --table
robo-rl study offline --out studies/offline --jobs 2     (the same command)
robo-rl race beacons --out races/beacons --jobs 2        (the same command)"""


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


def read_plan(name: str) -> Study | Race:
    """Return an experiment that comes with the package, or that of a YAML file, a race if it has tasks.

    Raises UnknownName or InvalidSetting.
    """
    folder = Path(str(files("robo_cli") / "experiments"))
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    path = Path(name) if name.endswith((".yaml", ".yml")) else known.get(name)
    if path is None or not path.exists():
        raise UnknownName("experiment", name, known, fix="a path to a .yaml file works too")
    found = read_yaml(path)
    kind: type[Study | Race] = Race if isinstance(found, dict) and "tasks" in found else Study
    try:
        plan: Study | Race = pydantic.TypeAdapter(kind).validate_python({"name": path.stem, **found})
    except (pydantic.ValidationError, TypeError) as error:
        raise InvalidSetting(
            f"{path} is not an experiment.", got=_reasons(error), fix="docs/experiments.md shows some"
        ) from None
    return plan


def _reasons(error: Exception) -> Any:
    if not isinstance(error, pydantic.ValidationError):
        return error
    return "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
