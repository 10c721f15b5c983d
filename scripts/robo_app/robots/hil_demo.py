"""Demonstration of learning from a person on a twin (`robo-rl demo hil`): options, and the training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import robo_rl
from robo_app.recipes.defaults import completed
from robo_app.recipes.recipe import (
    DemonstrationSettings,
    EnvironmentSettings,
    HumanSettings,
    Recipe,
    read_recipe,
    require_at_least,
)
from robo_app.recording.record import Record, record
from robo_app.robots.twin_process import twin_process
from robo_app.training.supervision import CONSOLE, robot_at
from robo_datasets.dataset import Dataset
from robo_rl.runs.run import Run

RECIPES = {"pick": "arm-pick-hil", "peg": "arm-peg-hil"}
"""Name of a task -> recipe that trains it in the simulation."""
STEPS = {"pick": 4000, "peg": 8000}
"""Task -> default number of decisions, of 0.15 s and 0.1 s of the robot's time."""
DEMONSTRATIONS, NOISE = 20, 0.1
PICTURE = 240
"""Height and width of the pictures on the page [pixel]."""


@dataclass(frozen=True)
class Hil:
    """Teach a simulated arm in a separate process; the same command resumes an interrupted demonstration."""

    task: Literal["pick", "peg"] = "pick"
    """pick: lift a cube. peg: put a peg, which the closed fingers hold, into a hole."""
    human: Literal["console", "simulated"] = "console"
    """Source of corrections: you, on a page in the browser, or a scripted perfect person."""
    teleoperator: str = ""
    """Device that you drive with beside the page: spacemouse, gamepad."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Decisions; by default 4,000 of 0.15 s of the robot's time to pick, 8,000 of 0.1 s for the peg."""
    episodes: int = 5
    """Episodes of the evaluation before the first step, and of that at the end."""
    speed: float = 1.0
    """Speed of the simulated arm, times real time."""
    seed: int = 0
    """Seed of networks, resets and samples."""
    port: int = 8644
    """Port of the page; 0 takes any free one."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Leave the browser alone; without this the page opens in it if there is a display."""
    out: Path = Path("demos/hil")
    """Folder for demonstrations, run and audit log."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "seed": 0, "port": 0} | ({} if self.steps is None else {"steps": 1}))


def hil(arguments: Hil) -> int:
    """Record demonstrations in the simulation, serve the twin, train on it, and print success before and after."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    demonstrations = _demonstrations(arguments)
    cameras = ["front", "wrist"] if arguments.human == CONSOLE else []
    task = read_recipe(RECIPES[arguments.task]).environment.name
    log = arguments.out / "audit.jsonl"
    with twin_process(log, task=task, speed=arguments.speed, cameras=cameras, image_size=PICTURE) as url:
        print(f"the twin is at {url}", flush=True)
        return _go_on(arguments, url, demonstrations)


def _go_on(arguments: Hil, url: str, demonstrations: Path) -> int:
    runs = arguments.out / "runs"
    if (interrupted := _interrupted(runs, _name(arguments))) is not None:
        robo_rl.resume(interrupted, robot=url, progress=True)
    else:
        robo_rl.train(recipe_of(arguments, url, demonstrations), out=runs, progress=True)
    return 0


def recipe_of(arguments: Hil, url: str, demonstrations: Path) -> Recipe[Any]:
    """Return the recipe of the demonstration.

    It is the recipe that trains this task in simulation, with the environment changed to the twin that is served at `url`.

    Args:
        arguments: Options of the command.
        url: Address of the twin's server.
        demonstrations: Folder of the recorded demonstrations.
    """
    recipe = read_recipe(RECIPES[arguments.task])
    kind = CONSOLE if arguments.human == CONSOLE else "perfect"
    evaluation = replace(
        recipe.evaluation, before=True, every=0, episodes=arguments.episodes, episodes_during=arguments.episodes, videos=0
    )
    return completed(
        replace(
            recipe,
            name=_name(arguments),
            environment=EnvironmentSettings(robot_at(url), recipe.environment.arguments),
            demonstrations=DemonstrationSettings(str(demonstrations.absolute())),
            human=HumanSettings(kind, port=arguments.port, browser=arguments.browser, teleoperator=arguments.teleoperator),
            evaluation=evaluation,
            steps=STEPS[arguments.task] if arguments.steps is None else arguments.steps,
            seed=arguments.seed,
            log_every=100,
            checkpoint_every=500,
            record_episodes=True,
        )
    )


def _name(arguments: Hil) -> str:
    return f"demo-hil-{arguments.task}-{arguments.human}"


def _demonstrations(arguments: Hil) -> Path:
    """Return the folder of the scripted expert's demonstrations; missing episodes are recorded."""
    path = arguments.out / f"demonstrations-{arguments.task}"
    present = len(Dataset(path)) if path.exists() else 0
    if present < DEMONSTRATIONS:
        task = read_recipe(RECIPES[arguments.task]).environment
        order = Record(
            task.name,
            path,
            episodes=DEMONSTRATIONS - present,
            seed=present,
            noise=NOISE,
            append=path.exists(),
            arguments=task.arguments,
        )
        recorded = record(order)
        print(f"{len(recorded)} episodes in {path}; `robo-rl data info {path}` describes them")
    return path


def _interrupted(runs: Path, name: str) -> Run | None:
    """Return the newest run with a name if it is not finished, else None."""
    found = [Run(path) for path in sorted(runs.glob(f"*-{name}-*")) if (path / "recipe.yaml").exists()]
    return found[-1] if found and not (found[-1].path / "evaluation.json").exists() else None
