"""robo-rl evaluate: judge a run's policy again, on more seeds or in another environment of the same spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

import robo_rl
from robo_app.arguments.carla_servers import with_server
from robo_app.arguments.free_settings import EnvironmentArguments
from robo_app.display.display import show_result
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import FIRST_SEED

EXAMPLES = """robo-rl evaluate latest --step best     (the best policy in the evaluations of the training, not the newest)
robo-rl evaluate RUN --environment "robot:http://127.0.0.1:5000?action_repeat=3"     (--shadow scripted sends nothing of it)
robo-rl evaluate RUN --perturb physics --episodes 20     (over grids of masses, friction, damping, strength)
robo-rl evaluate RUN --routes town-test --environment.arguments.traffic 20 --carla-host gpu-machine     (of a run that drives)
robo-rl evaluate zoo:data/zoo-agents/sac/HalfCheetah-v3_1     (of others: an agent of RL Baselines3 Zoo)"""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a run's policy; exit status 1 if a guard or a person changed every command, so that it was not judged."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"; zoo:PATH of an agent of Stable-Baselines3, a zip or its folder."""
    episodes: int = 50
    """Episodes, one per seed."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; the others follow."""
    environment: str = ""
    """Another environment than the one trained on; one of the same family is made with the same arguments."""
    routes: str = ""
    """For a driving run: a set of routes, such as town-test, instead of an environment and its map."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment that differs from the training's, such as --environment.arguments.traffic 20"""
    videos: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Episodes that are filmed, half of them failures if there are both; by default 2 elsewhere, 0 where it was trained."""
    stochastic: bool = False
    """Sample actions instead of taking the most likely one, as with evaluation.stochastic of a recipe."""
    step: Annotated[int | Literal["best"] | None, tyro.conf.arg(metavar="{INT,best}")] = None
    """Step of the policy, if kept (record_episodes, or a checkpoint), or "best" of the training; by default the newest."""
    attempts: int = 1
    """Episodes at each seed, with sampled actions; from 2 on with the chance that one of 1, 5, ... succeeds (pass@k)."""
    split: str = ""
    """Levels that are played instead of --seed: train, those that the training had; validation; or test."""
    shadow: str = ""
    """On a robot: send nothing of the policy; the guard judges its actions while zero, scripted or person commands."""
    perturb: str = ""
    """Over the grids of a plan, physics, timing or a YAML file: a table, and a page of heat maps in the run's folder."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    carla_host: str = ""
    """For a run that drives: host of a running CARLA server, instead of a stand-in."""
    carla_port: tuple[int, ...] = ()
    """Port of that CARLA server."""


def run(arguments: Evaluate) -> int:
    """Print n, the success rule, seeds, measures and intervals; of an evaluation that ends early, those of its episodes."""
    show = partial(show_result, arguments.json)
    if arguments.run.startswith("zoo:"):
        from robo_app.training.foreign_agents import evaluate_agent

        show_agent = partial(show, f"agent    {arguments.run}\n")
        return show_agent(evaluate_agent(vars(arguments), on_incomplete=show_agent))
    trained = robo_rl.open_run(arguments.run, runs=arguments.runs)
    title = f"run      {trained.path}\n"
    if arguments.step is not None and (arguments.perturb or arguments.shadow):
        raise InvalidSetting("--step does not go with --perturb or --shadow.", got=arguments.step, allowed="the newest policy")
    if arguments.shadow:
        from robo_app.robots.shadow import ShadowSettings, shadow_run_elsewhere

        asked = ShadowSettings(arguments.shadow, arguments.episodes, arguments.seed)
        report, kept = shadow_run_elsewhere(trained, arguments.environment, arguments.arguments, asked)
        return show("", report, f"\nkept     {kept}")
    how = {each: getattr(arguments, each) for each in ("seed", "environment", "routes", "stochastic")}
    how["arguments"] = with_server(arguments.arguments, arguments)
    if arguments.perturb:
        from robo_app.training.robustness import evaluate_perturbed

        found, page = evaluate_perturbed(trained, arguments.perturb, arguments.episodes, **how)
        return show(title, found, f"\npage     {page}")
    before = trained.report.stat().st_mtime_ns if trained.report.exists() else None
    how |= {name: getattr(arguments, name) for name in ("videos", "attempts", "split", "step")}
    evaluation = trained.evaluate(arguments.episodes, **how, on_incomplete=partial(show, title))
    is_new = trained.report.exists() and trained.report.stat().st_mtime_ns != before
    show(title, evaluation, f"\nreport   {trained.report}" if is_new else "")
    return int(evaluation.commands is not None and bool(evaluation.commands.warning))
