"""Evaluate a run over a plan of perturbations: `robo-rl evaluate RUN --perturb PLAN`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from robo_app.recipes.overrides import plain_value
from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import policy_of, recipe_of
from robo_app.training.finalisation import judge
from robo_app.training.run_evaluation import elsewhere
from robo_rl.errors import UnknownName
from robo_rl.evaluation.evaluation import FIRST_SEED, Evaluation
from robo_rl.evaluation.robustness import Cell, Plan, Robustness, measure, name_of, plan_of
from robo_rl.protocols.components import Policy
from robo_rl.report import ROBUSTNESS, write_report
from robo_rl.report.robustness_page import write_robustness
from robo_rl.runs.run import Run, write_text
from robo_rl.system.plain_files import read_yaml
from robo_rl.system.threads import tensor_threads
from robo_sims.perturbed import Perturbation


def read_plan(name: str) -> Plan:
    """Return a plan of the package by name, or of a YAML file by path; raises UnknownName, InvalidSetting."""
    folder, own = Path(str(files("robo_app") / "training" / "perturbations")), Path(name)
    shipped = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if own.suffix not in (".yaml", ".yml") and name not in shipped:
        raise UnknownName("plan of perturbations", name, shipped, fix="give the path of a YAML file")
    path = shipped.get(name, own)
    return plan_of(path.stem, read_yaml(path), asdict(Perturbation()))


def evaluate_perturbed(
    run: Run,
    plan: str,
    episodes: int = 50,
    *,
    seed: int = FIRST_SEED,
    environment: str = "",
    routes: str = "",
    arguments: Mapping[str, Any] | None = None,
    stochastic: bool = False,
) -> tuple[Robustness, Path]:
    """Return the robustness of a run's newest policy and the page about it; cells that were evaluated before are read again.

    plan: as in `read_plan`. environment, routes, arguments, stochastic: as in `Run.evaluate`. Progress is printed on stderr.
    """
    cells, recipe = read_plan(plan), recipe_of(run)
    nominal = elsewhere(recipe.environment, environment, routes, plain_value(arguments or {}))
    judged = replace(
        recipe,
        environment=nominal,
        evaluation=replace(
            recipe.evaluation, arguments={}, wrappers=(), videos=0, stochastic=stochastic or recipe.evaluation.stochastic
        ),
    )
    step = run.load().step
    facts = {
        "step": step,
        "episodes": episodes,
        "seed": seed,
        "environment": asdict(nominal),
        "stochastic": judged.evaluation.stochastic,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:8]
    folder = run.path / "robustness" / digest  # cells of several plans that agree in all else are shared
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder.with_suffix(".json"), json.dumps(facts, default=str))
    with tensor_threads(recipe.threads):
        found = measure(cells, folder, partial(_judge, run, judged, policy_of(run, recipe), episodes, seed), _said)
    page = write_robustness(found, run.path / ROBUSTNESS, policy=run.path.name)
    if run.report.exists():
        write_report([run.path], run.report)  # which shows the way to the page
    return found, page


def _judge(run: Run, recipe: Recipe[Any], policy: Policy, episodes: int, seed: int, cell: Cell) -> Evaluation:
    nominal = recipe.environment
    there = replace(nominal, wrappers=(*nominal.wrappers, {"name": "perturbed", **cell}))
    return judge(run, replace(recipe, environment=there), policy, range(seed, seed + episodes), f"perturbed-{name_of(cell)}")


def _said(line: str) -> None:
    print(line, file=sys.stderr)
