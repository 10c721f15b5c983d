"""robo-rl train --collectors: recipes that support collectors, and trainings that use them.

RUN/collectors.txt  their output      RUN/collected/  segments of off-policy learners since the last checkpoints
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from robo_app.recipes.loop_choice import loop_of
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_rl.cluster.connection import Cluster, connected
from robo_rl.cluster.environment import require_library
from robo_rl.cluster.local import LocalEngine
from robo_rl.cluster.over_ray import RayEngine
from robo_rl.cluster.workers import Engine
from robo_rl.collectors.asynchronous import AsynchronousTraining, Pace
from robo_rl.collectors.collector_pool import TIMEOUTS, CollectorPool
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.collectors.synchronous import SynchronousTraining
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Training
from robo_rl.protocols.contract import COLLECTED_ROLLOUTS
from robo_rl.runs.run import Run
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.plan import TrainingPlan
from robo_rl.training.replay_learning import ReplayLearner

HERE = "here"
AGAIN_THERE = "start the cluster again, then robo-rl resume: it goes on from its newest checkpoint"
LOG, COLLECTED = "collectors.txt", "collected"


@dataclass(frozen=True)
class CollectingSettings:
    """Collectors of a training."""

    count: int
    """Number of collectors."""
    ray: str = ""
    """Empty for processes of this machine, "auto" for a Ray cluster of this machine, HOST:PORT for an existing Ray cluster."""
    patience: float = TIMEOUTS.answer
    """[s] Time after which a collector that has not answered counts as hung."""
    most_stale: int = 0
    """Largest age of parameters in steps, for off-policy learners (`robo_rl.collectors.asynchronous.Pace`)."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings as an entry of run.json."""
        return dict(vars(self))


def require_collectable(recipe: Recipe[Any], settings: CollectingSettings) -> None:
    """Raise InvalidSetting if a recipe cannot be trained with these collectors."""
    loop = loop_of(recipe, collectors=True)
    if settings.ray:
        require_library()
    if settings.count < 1:
        raise InvalidSetting("A training needs a collector.", got=f"--collectors {settings.count}", allowed="1 or more")
    if loop is COLLECTED_ROLLOUTS and recipe.learner.num_envs % settings.count:
        raise InvalidSetting(
            "Every collector has as many environments as the others.",
            got=f"{recipe.learner.num_envs} environments, --collectors {settings.count}",
            allowed="a divisor of learner.num_envs",
            fix="choose another of the two",
        )


def collected_training(
    run: Run, recipe: Recipe[Any], settings: CollectingSettings, plan: TrainingPlan
) -> SynchronousTraining | AsynchronousTraining:
    """Return a training that starts its collectors at its first step; the context `dismissed` ends them."""
    timeouts = replace(TIMEOUTS, answer=settings.patience)
    pool = CollectorPool(engine_of(run, settings), {"recipe": to_yaml(recipe)}, settings.count, timeouts=timeouts)
    if plan.loop is COLLECTED_ROLLOUTS:
        learner = recipe.learner.build(run.spec, recipe.seed, steps=recipe.steps)
        return SynchronousTraining(learner, pool, recipe.learner, steps=recipe.steps)
    checkpoint = run.load().step if run.has_checkpoint else 0
    step_learner = ReplayLearner(
        plan.learner(),
        plan.config.sampling,
        seed=plan.seed,
        stopwatch=Stopwatch(),
        demonstrations=plan.demonstrations,
    )
    return AsynchronousTraining(
        step_learner,
        pool,
        SegmentLog(run.path / COLLECTED, checkpoint),
        run.path / "checkpoints",
        steps=plan.steps,
        pace=Pace(most_stale=settings.most_stale),
    )


def engine_of(run: Run, settings: CollectingSettings) -> Engine:
    """Return the launcher of collectors: on this machine or on a cluster."""
    if settings.ray:
        return RayEngine(partial(_cluster, settings), "robo_app.training.collector:collector_of")
    return LocalEngine([sys.executable, "-m", "robo_app.training.collector"], run.path / LOG)


@contextmanager
def _cluster(settings: CollectingSettings) -> Iterator[Cluster]:
    """Connect to the cluster; raises InvalidSetting if it has fewer cores than there are collectors."""
    cores = max(settings.count, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    with connected(settings.ray, cores=cores, again=AGAIN_THERE) as cluster:
        if cluster.cores < settings.count:
            raise InvalidSetting(
                "The cluster has fewer cores than there are to be collectors.",
                got=f"{cluster.cores:g} cores, {settings.count} collectors",
                fix="add machines to the cluster, or lower --collectors; then robo-rl resume",
            )
        yield cluster


@contextmanager
def dismissed(training: Training, tell: Callable[[str], None]) -> Iterator[None]:
    """End the collectors of a training, if it has any, at the end of the block. tell: function that shows a line of text."""
    if not isinstance(training, SynchronousTraining | AsynchronousTraining):
        yield
        return
    training.pool.tell = tell
    try:
        yield
    finally:
        training.pool.close()


def settings_of(run: Run, ray: str = "") -> CollectingSettings | None:
    """Return the settings of a run's collectors, None if the run has none.

    ray: new place of the collectors, "here" for processes of this machine; empty for the place that the run names.
    """
    found = run.description.get("collectors")
    if ray:
        if found is None:
            raise InvalidSetting(f"The run {run.path.name} has no collectors.", got=f"--ray {ray}", fix="leave --ray out")
        found = {**found, "ray": "" if ray == HERE else ray}
        run.describe(collectors=found)
    return None if found is None else CollectingSettings(**found)
