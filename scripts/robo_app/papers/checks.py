"""Check an installed paper: each component that its folder declares passes the conformance suite of its kind.

    from robo_app.papers.checks import check_paper

    def test_the_paper_keeps_its_promises():
        check_paper("my_paper")

The checks try a component with its default settings, or with those of its folder's `paper.toml`:

    [trials.rwr]
    settings = {hidden = [8], batch_size = 8}       # small ones, so that the checks take a second
    environment = "trial:Tray"                       # of a learner: makes a robo_rl.conformance.swerving.Swerving it can act in
    wrap = "trial:with_prior"                        # of a learner: put around that
    [trials.goal-progress]
    environment = "robo/ArmReach-v0"                 # of a reward or wrapper: a name
    [trials.other]
    elsewhere = "it learns from recorded episodes alone (tests/test_other.py)"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from robo_app.papers.trials import Around, run_learner
from robo_app.recipes.files import heading
from robo_app.recipes.recipe import read_recipe
from robo_rl.conformance.environments import check_environment
from robo_rl.conformance.learners import check_learner
from robo_rl.conformance.swerving import Swerving
from robo_rl.conformance.trainings import TRAINING_CHECKS, Trial
from robo_rl.conformance.wrappers import check_wrapper
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment, tasks_of
from robo_rl.errors import ConformanceFailure, UnknownName
from robo_rl.papers import Paper, papers
from robo_rl.rewards.conformance import check_online_reward, check_reward
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import settings_as
from robo_rl.spec.environment import specification

EPISODES = 3


@dataclass(frozen=True)
class TrialRow:
    """Row of `[trials]` in paper.toml: how the conformance suites try a component."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the component in the trial; small ones, to save time."""
    environment: str = ""
    """Environment of the trial; empty for that of the suites."""
    wrap: str = ""
    """Function, as module:name of the folder, that wraps the environment for a learner; empty for none."""
    elsewhere: str = ""
    """Reason why the suites leave the component out, with the tests that cover it; empty if they do not."""


def rows_of(paper: Paper) -> dict[str, TrialRow]:
    """Return component -> row of `[trials]`, with default values for components without a row.

    Raises UnknownName or InvalidSetting for a misspelt component or key.
    """
    names = [name for components in paper.components.values() for name in components]
    for name in paper.trials:
        if name not in names:
            raise UnknownName(f"component in the trials of {paper.folder / 'paper.toml'}:", name, names)
    source = f"{paper.folder / 'paper.toml'}, trials"
    return {name: settings_as(TrialRow, paper.trials.get(name, {}), source=f"{source}.{name}") for name in names}


def run_row(paper: Paper, row: TrialRow, config: Any, *, count: int = 1, corrected: bool = False) -> Trial:
    """Run a short training of a paper's learner; `count` and `corrected` are those of `run_learner`.

    config: settings of the learner.
    """
    environment: Callable[[], Swerving] | None = _object_of(paper, row.environment)
    return run_learner(config, environment=environment, wrap=_wrap_of(paper, row), count=count, corrected=corrected)


def _wrap_of(paper: Paper, row: TrialRow) -> Around:
    wrap: Around = _object_of(paper, row.wrap) or (lambda inner: inner)
    return wrap


def _object_of(paper: Paper, place: str) -> Any:
    """Return the object "module:name" of a paper's folder; None for ""."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"{paper.package}.{module}"), name) if place else None


def check_paper(name: str) -> None:
    """Check all components, recipes and the page of an installed paper; raises ConformanceFailure at the first failure."""
    if name not in papers():
        raise UnknownName("paper", name, papers(), fix="install its package, which declares it under robo_rl.papers")
    paper = papers()[name]
    rows = {key: row for key, row in rows_of(paper).items() if not row.elsewhere}
    for group, check in CHECKS.items():
        for component in paper.components.get(group, {}):
            if component in rows:
                check(paper, component, rows[component])
    for group, components in paper.components.items():  # all that is declared is there
        for component in components:
            load(group, component)
    for recipe, file in paper.recipes.items():
        read_recipe(recipe)
        _require(bool(heading(file).summary), paper, "its recipes have a summary", f"{file} has none")
    _require(paper.page is not None, paper, "it has a page", f"there is no {paper.folder / 'page.md'}")


def _check_learner(paper: Paper, name: str, row: TrialRow) -> None:
    config = settings_as(load("learners", name), row.settings, source=f"trials.{name}.settings")
    trial = run_row(paper, row, config)
    for check in TRAINING_CHECKS:
        check(trial)
    if hasattr(config, "build") and hasattr(config, "sampling"):
        spec, sampling = specification(_wrap_of(paper, row)(trial.factory.made[0])), config.sampling
        check_learner(partial(config.build, spec), spec, sampling.batch_size * sampling.updates_per_step, sampling.extras)


def _check_reward(paper: Paper, name: str, row: TrialRow) -> None:
    reward = load("rewards", name)(**row.settings)
    environment = make_environment(row.environment) if row.environment else Swerving()
    spec = specification(environment)
    episodes = [rollout(environment, RandomPolicy(spec, seed), seed=seed) for seed in range(EPISODES)]
    environment.close()
    check_reward(reward, episodes)
    if hasattr(reward, "online"):
        check_online_reward(reward, spec, episodes)


def _check_environments(paper: Paper, name: str, row: TrialRow) -> None:
    for task in tasks_of(name):
        check_environment(partial(make_environment, task))


def _check_wrapper(paper: Paper, name: str, row: TrialRow) -> None:
    make = partial(make_environment, row.environment) if row.environment else Swerving
    check_wrapper(settings_as(load("wrappers", name), row.settings, source=f"trials.{name}.settings"), make)


CHECKS: Mapping[Any, Callable[[Paper, str, TrialRow], None]] = {
    "learners": _check_learner,
    "rewards": _check_reward,
    "environments": _check_environments,
    "wrappers": _check_wrapper,
}
"""Group of entry points -> check of one component."""


def _require(holds: bool, paper: Paper, rule: str, failure: str) -> None:
    if not holds:
        raise ConformanceFailure(paper.name, rule, failure)
