"""robo-rl evaluate: judge a run's policy again, on more seeds or in another environment of the same spec."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from robo_cli.assembly import policy_of, recipe_of
from robo_cli.conclude import judge
from robo_cli.recipe import EnvironmentSettings, require_at_least
from robo_cli.servers import with_server
from robo_cli.threads import use_threads
from robo_cli.typed_settings import settings_of
from robo_rl.discovery import load
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation import FIRST_SEED, Evaluation
from robo_rl.report import write_report
from robo_rl.runs import Run, find_run, write_text

EXAMPLES = """robo-rl evaluate latest
robo-rl evaluate latest --episodes 200 --json
robo-rl evaluate RUN --environment my_lab/Cell-v0     (refused unless units, frames, action mode and rate agree)
robo-rl evaluate RUN --environment "robot:http://127.0.0.1:5000?action_repeat=3"     (the same, on a robot that is served)
robo-rl evaluate RUN --routes town-test --arguments traffic=20     (of a run that drives)
robo-rl evaluate RUN --carla-host gpu-machine --carla-port 2000"""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate the policy of a run's newest checkpoint.

    An evaluation elsewhere than in the training's environment is kept in the run, filmed, and shown in its report.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    episodes: int = 50
    """Episodes, one per seed."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; the others follow."""
    environment: str = ""
    """Another environment than the one trained on; one of the same family is made with the same arguments."""
    routes: str = ""
    """For a run that drives: a set of routes, such as town-test, instead of an environment and of its own map."""
    arguments: tuple[str, ...] = ()
    """Settings of the environment that differ from the training's, such as traffic=20."""
    films: Annotated[int | None, tyro.conf.arg(aliases=["--videos"], metavar="INT")] = None
    """Episodes that are filmed (videos), half of them failures where there are both; by default 2 elsewhere, and none in the
    training's own environment, which the training has filmed."""
    stochastic: bool = False
    """Sample actions instead of taking the most likely one, as where the recipe says so (evaluation.stochastic)."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    carla_host: str = ""
    """For a run that drives: host of a running CARLA server, instead of a stand-in."""
    carla_port: tuple[int, ...] = ()
    """Port of that CARLA server."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "seed": 0} | ({} if self.films is None else {"films": 0}))
        if self.environment and self.routes:
            raise InvalidSetting(
                "A set of routes is an environment.", got="--environment and --routes", allowed="one of the two"
            )


def run(arguments: Evaluate) -> int:
    """Prints n, the success rule, seeds, measures and intervals."""
    trained = find_run(arguments.run, arguments.runs)
    recipe = recipe_of(trained)
    use_threads(recipe.threads)
    policy = policy_of(trained, recipe)
    there = _elsewhere(recipe.environment, arguments)
    name = _name(arguments)
    how = replace(
        recipe.evaluation,
        arguments={} if name else recipe.evaluation.arguments,
        films=(2 if name else 0) if arguments.films is None else arguments.films,
        stochastic=arguments.stochastic or recipe.evaluation.stochastic,
    )
    recipe = replace(recipe, environment=there, evaluation=how)
    evaluation = judge(trained, recipe, policy, arguments.episodes, arguments.seed, name or "evaluation")
    print(json.dumps(evaluation.to_json()) if arguments.json else f"run      {trained.path}\n{evaluation}")
    if name:
        _keep(trained, name, evaluation)
    if name or how.films:
        report = write_report([trained.path], trained.path / "report.html")
        print("" if arguments.json else f"report   {report}\n", end="")
    return 0


def _keep(run: Run, name: str, evaluation: Evaluation) -> None:
    """Keeps an evaluation elsewhere in the run, for its report."""
    (run.path / "evaluations").mkdir(exist_ok=True)
    write_text(run.path / "evaluations" / f"{name}.json", json.dumps(evaluation.to_json()))


def _name(arguments: Evaluate) -> str:
    """Returns what tells an evaluation from that of the training; "" where nothing does."""
    server = [f"at-{arguments.carla_host or 'this-machine'}"] if arguments.carla_host or arguments.carla_port else []
    parts = [arguments.environment, arguments.routes, *arguments.arguments, *server]
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", "-".join(filter(None, parts)))


def _elsewhere(trained_on: EnvironmentSettings, arguments: Evaluate) -> EnvironmentSettings:
    family = trained_on.name.partition("/")[0]
    name, own = arguments.environment or trained_on.name, dict(trained_on.arguments)
    if arguments.routes:
        known: dict[str, str] = dict(getattr(load("environments", family), "routes", {}))
        if arguments.routes not in known:
            raise UnknownName(f"set of routes of {family}", arguments.routes, known, fix="--environment takes any environment")
        name = f"{family}/{known[arguments.routes]}"
        own = {key: value for key, value in own.items() if key not in {"map", "routes"}}
    elif name.partition("/")[0] != family:
        own = {}
    return EnvironmentSettings(name, with_server({**own, **settings_of(arguments.arguments)}, arguments))
