"""Start and end of a training: initial policy from another run, evaluations before and after, lease of the robot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import read_by_learner, recipe_of
from robo_real.environment import RobotEnv
from robo_real.server.lease import LASTS
from robo_rl.errors import RunError
from robo_rl.evaluation.evaluation import Evaluation, compare
from robo_rl.protocols.components import Learner, Training
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import Run, find_run
from robo_rl.training.off_policy import StepLoop
from robo_rl.training.offline_to_online import OfflineThenOnline
from robo_rl.training.step_sources import EnvironmentSteps

PATIENCE = 2 * LASTS
"""[s] Longest wait for the end of a dead process's lease."""


def with_reads(recipe: Recipe[Any]) -> Recipe[Any]:
    """Return the recipe with the names of entries that the policy of its initial run reads; unchanged without such a run."""
    if not recipe.initial.run or recipe.initial.reads:
        return recipe
    run = find_run(recipe.initial.run, Path("."))
    reads = tuple(read_by_learner(recipe_of(run), run.spec).observation)
    return replace(recipe, initial=replace(recipe.initial, reads=reads))


def require_same_reading(run: Run, learner: Learner) -> None:
    """Raise SpecMismatch unless a learner has the same observations and actions as a run's learner."""
    before, now = read_by_learner(recipe_of(run), run.spec), learner.policy.environment_spec
    before.require_interface(now, what=f"The policy of {run.path.name} was trained for another robot", exactly=True)


def begin(run: Run, recipe: Recipe[Any], training: Training, record: RunRecord) -> None:
    """Before the first step, store an initial learner from another run, and evaluate the policy if the recipe says so."""
    if training.step:
        return
    if recipe.initial.run and not run.has_checkpoint:
        record.save(0, training)  # the run that it came from may be gone when this one is resumed
    if recipe.evaluation.before and not _before(run).exists():
        record.evaluate(0, training)


def wait_for_robot(training: Training) -> None:
    """Take the robot of a training that is resumed after a crash; waits while the dead process still holds the lease."""
    environment = _environment(training)
    if environment is not None and isinstance(robot := environment.unwrapped, RobotEnv):
        robot.take(PATIENCE)


@contextmanager
def left_still(training: Training) -> Iterator[None]:
    """Close the environment of a training at its end, also after an error: a robot stops, and others may use it."""
    try:
        yield
    finally:
        if (environment := _environment(training)) is not None:
            environment.close()


def _environment(training: Training) -> gymnasium.Env[Any, Any] | None:
    """Return the environment of a training if it has a single one in this process, else None."""
    loop = training.online if isinstance(training, OfflineThenOnline) else training
    source = loop.source if isinstance(loop, StepLoop) else None
    return source.environment if isinstance(source, EnvironmentSteps) else None


def before_and_after(run: Run, after: Evaluation) -> str:
    """Return a table of the policy before and after the training, on the common seeds of both evaluations."""
    if not _before(run).exists():
        raise RunError(f"{run.path.name} was not evaluated before its first step.", fix="start a new training")
    before = Evaluation.read(_before(run))
    comparisons, seeds = compare([before], [after])
    lines = [f"{'':8} {'success':28} {'return':>8} {'steps of a success':>20}"]
    lines += [_row(name, evaluation) for name, evaluation in (("before", before), ("after", after))]
    if (success := comparisons.get("success")) is not None:
        on = f"{success.episodes} shared seed{'s' * (success.episodes != 1)}{success.left_out(len(seeds))}"
        lines.append(f"success after - before {success.mean_difference:+.1%} on {on}")
    return "\n".join(lines)


def _row(name: str, evaluation: Evaluation) -> str:
    rate = "-" if evaluation.success_rate is None else f"{evaluation.success_rate:.1%}"
    lengths = [length for length, success in zip(evaluation.lengths, evaluation.successes, strict=True) if success]
    steps = f"{np.mean(lengths):.1f}" if lengths else "-"
    return f"{name:8} {rate:28} {evaluation.mean_return.estimate:>8.3g} {steps:>20}"


def _before(run: Run) -> Path:
    return run.path / "evaluations" / f"{0:010d}.json"
