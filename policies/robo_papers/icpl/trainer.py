"""Trainer of searches: trains a recipe with a reward program in a separate folder and returns the outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import robo_rl
from robo_app.recipes.recipe import Recipe, RewardSettings
from robo_app.training.assembly import policy_of, recipe_of
from robo_app.training.finalisation import judge
from robo_papers.icpl.candidates import KeptTrainer, Outcome, TrainedCandidate, training_name
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidProgram, InvalidSetting, NonFiniteUpdate, ProgramFailed, RewardUnavailable, SimulationFailed
from robo_rl.report.hacking import MODEL
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.runs.run import Run
from robo_rl.spec.environment import specification

SELECTION, CONFIRMATION = 10_000, 20_000
"""Offsets from the recipe's first evaluation seed: of the episodes that choose candidates, and of those that judge the
winner."""
FAULTS = (InvalidProgram, ProgramFailed, RewardUnavailable, NonFiniteUpdate, SimulationFailed)
"""Errors attributed to a candidate; any other is of recipe or machine, and ends the search."""
OWN = ("reward/missing", MODEL)
"""Tags of a program's reward in the log that are no terms of the program."""


@dataclass(frozen=True)
class RecipeTrainer:
    """Trains the same recipe with one reward program after another."""

    recipe: Recipe[Any]
    folder: Path
    """Folder of all trainings."""
    beyond: int = SELECTION
    """Added to the recipe's first evaluation seed, for the episodes that give the score."""

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Train a policy with this program and seed, and return the outcome; an interrupted training resumes."""
        place = self.folder / training_name(program, seed)
        place.mkdir(parents=True, exist_ok=True)
        path = program.save(place / "program.py")
        reward = RewardSettings(name="program", settings={"path": str(path)}, probation=False)  # the search has tried it
        recipe = replace(self.recipe, seed=seed, reward=reward)
        with (place / "log.txt").open("a", buffering=1) as log, redirect_stdout(log):
            try:
                run = trained(recipe, place)
                first = recipe.evaluation.seed + self.beyond
                evaluation = judge(
                    run,
                    replace(recipe, evaluation=replace(recipe.evaluation, videos=0)),
                    policy_of(run, recipe_of(run)),
                    range(first, first + recipe.evaluation.episodes),
                )
            except FAULTS as error:
                return Outcome(failure=str(error), folder=place.name)
        rate = evaluation.success_rate
        if rate is None:
            raise _no_success(recipe)
        steps, successes = _course(run)
        folder = str(run.path.relative_to(self.folder))
        return Outcome(rate.estimate, steps, successes, term_traces(run.metrics()), folder=folder)

    def run_of(self, outcome: Outcome) -> Run:
        """Return the run of a training that ended with a policy."""
        return Run(self.folder / outcome.folder)


def require_success(recipe: Recipe[Any]) -> None:
    """Raise InvalidSetting if the environment declares no success, before any rating or training."""
    environment = make_environment(recipe.environment.name, **recipe.arguments)
    rule = specification(environment).success_rule
    environment.close()
    if rule is None:
        raise _no_success(recipe)


def _no_success(recipe: Recipe[Any]) -> InvalidSetting:
    return InvalidSetting(
        f"{recipe.environment.name} does not declare success, by which programs are chosen.",
        fix="choose an environment with a success rule (`robo-rl envs NAME` says so)",
    )


def trained(recipe: Recipe[Any], place: Path) -> Run:
    """Return the finished run of a recipe in a separate folder: new, resumed, or finished before."""
    runs = [Run(path.parent) for path in sorted(place.glob("*/recipe.yaml"))]
    begun = next((run for run in reversed(runs) if run.has_checkpoint), None)
    if begun is None:
        return robo_rl.train(recipe, out=place, progress=True)
    return robo_rl.resume(begun, progress=True)


def term_traces(metrics: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, ...]]:
    """Return term, or "total" -> mean per step in each log line with its sum and the length of an episode."""
    found: dict[str, list[float]] = {}
    for line in metrics:
        length = line.get("rollout/ep_len_mean")
        for tag, value in line.items() if length else ():
            if tag == MODEL or (tag.startswith("reward/") and tag not in OWN):
                found.setdefault("total" if tag == MODEL else tag.removeprefix("reward/"), []).append(value / length)
    return {name: tuple(values) for name, values in found.items()}


def _course(run: Run) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return steps, and share of success, of the evaluations during training."""
    found = {}
    for path in sorted((run.path / "evaluations").glob("*.json")):
        known = [success for success in json.loads(path.read_text())["successes"] if success is not None]
        if known:
            found[int(path.stem)] = sum(known) / len(known)
    return tuple(found), tuple(found.values())


def confirmed_outcomes(winner: TrainedCandidate, recipe: Recipe[Any], folder: Path, seeds: Sequence[int]) -> list[Outcome]:
    """Return the outcomes of the winner from other training seeds, in other episodes than those that chose it."""
    trainer = RecipeTrainer(recipe, folder / "confirmations", CONFIRMATION)
    kept = KeptTrainer(trainer, trainer.folder)
    return [kept.train(winner.program, seed) for seed in seeds if winner.program]
