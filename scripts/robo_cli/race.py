"""robo-rl race: train methods on tasks with several seeds, say how many steps each took to succeed; goes on where it stopped.

OUT/recipes/  what is trained          OUT/runs/  runs          OUT/logs/  what they printed          OUT/table.*, curves.png
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from robo_cli.curves import draw_curves
from robo_cli.jobs import run_jobs
from robo_cli.race_plan import Race, read_race
from robo_cli.race_table import markdown, table
from robo_cli.recipe import require_at_least
from robo_cli.trainings import begun, finished, training
from robo_rl.errors import RunError
from robo_rl.runs import write_text

EXAMPLES = """robo-rl race beacons --out races/beacons
robo-rl race beacons --out races/beacons --jobs 2
robo-rl race my-race.yaml --out races/mine --table"""


@dataclass(frozen=True)
class RaceOrder:
    """Train several methods on several tasks with several seeds at equal steps; stop it at any time and go on."""

    race: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RACE")]
    """Name of a race that comes with the package, or a YAML file."""
    out: Path
    """Folder for everything it makes; what is there already is not made again."""
    jobs: int = 1
    """Trainings at once, one thread each."""
    table: bool = False
    """Only write the table of what is finished."""

    def __post_init__(self) -> None:
        require_at_least(self, {"jobs": 1})


class Training(NamedTuple):
    """A method on a task with a seed."""

    method: str
    task: str
    seed: int

    @property
    def recipe_name(self) -> str:
        """Names its recipe, and its runs."""
        return f"{self.method}--{self.task}".lower()

    @property
    def run(self) -> tuple[str, int]:
        """Names its run."""
        return self.recipe_name, self.seed


def run(arguments: RaceOrder) -> int:
    """Trains what is missing, one seed of everything before the next, and prints the table."""
    race, out = read_race(arguments.race), arguments.out
    trainings = [Training(*each) for each in race.trainings()]
    _write_recipes(race, trainings, out)
    if not arguments.table:
        missing = [
            training(f"{each.recipe_name}-{each.seed}", _recipe_file(each, out), *each.run, out / "runs")
            for each in trainings
            if finished(*each.run, out / "runs") is None
        ]
        run_jobs(f"race {race.name}", missing, out / "logs", at_once=arguments.jobs)
    runs: dict[tuple[str, str, int], Path] = {
        each: found for each in trainings if (found := finished(*each.run, out / "runs")) is not None
    }
    facts = table(race, runs)
    write_text(out / "table.json", json.dumps(facts, indent=1))
    write_text(out / "table.md", markdown(facts))
    print((out / "table.md").read_text())
    by_method = {method: [run for (name, *_), run in runs.items() if name == method] for method in race.methods}
    draw_curves(by_method, out / "curves.png")
    return 0


def _write_recipes(race: Race, trainings: list[Training], out: Path) -> None:
    """Writes the recipe of each training; raises RunError where one has changed since it was trained."""
    for each in trainings:
        path, words = _recipe_file(each, out), race.recipe(each.method, each.task)
        if path.exists() and path.read_text() != words and begun(*each.run, out / "runs") is not None:
            raise RunError(f"{path} was trained with other settings.", fix="another --out, or remove what rests on it")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, words)


def _recipe_file(training: Training, out: Path) -> Path:
    return out / "recipes" / f"{training.recipe_name}.yaml"
