"""Collector of a recipe: a process that acts for the learner, on this or another machine."""

from __future__ import annotations

import sys
from typing import Any

from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.loop_choice import loop_of
from robo_app.recipes.recipe import Recipe, parse_recipe
from robo_rl.cluster.host import serve
from robo_rl.collectors.collector_pool import Collector
from robo_rl.collectors.rollouts import CollectedLearner, RolloutCollector
from robo_rl.collectors.segments import SegmentCollector
from robo_rl.protocols.components import VectorFactory
from robo_rl.protocols.contract import COLLECTED_ROLLOUTS
from robo_rl.runs.checkpoints import unpacked
from robo_rl.spec.environment import specification
from robo_rl.system.plain_files import parse_yaml
from robo_rl.system.supervised_process import inherited
from robo_rl.system.threads import use_threads
from robo_rl.training.actor_learner.acting import transferable
from robo_rl.training.step_sources import episode_seed


def collector_of(packed_job: bytes) -> Collector:
    """Return the collector of a packed job, which holds the text of the recipe, and index and number of the collectors."""
    job = unpacked(packed_job)
    recipe = parse_recipe(parse_yaml(job["recipe"], "The recipe"), source="the recipe of a collector")
    use_threads(recipe.threads)
    if loop_of(recipe, collectors=True) is COLLECTED_ROLLOUTS:
        return _of_rollouts(recipe, job["index"], job["count"])
    return _of_segments(recipe, job["birth"])


def _of_rollouts(recipe: Recipe[Any], index: int, count: int) -> RolloutCollector:
    each = recipe.learner.num_envs // count
    factory: VectorFactory = RecipeEnvironments(recipe)
    environments = factory.make_vector(each)
    spec = environments.environment_spec  # type: ignore[attr-defined]  # an attribute that Gymnasium does not have
    learner: CollectedLearner = recipe.learner.build(spec, recipe.seed)
    return RolloutCollector(environments, learner.policy, seed=recipe.seed, first=index * each)


def _of_segments(recipe: Recipe[Any], birth: int) -> SegmentCollector:
    environment = RecipeEnvironments(recipe)()
    seed = episode_seed(recipe.seed + 1, birth)  # of the random numbers of its actions, which no other collector has
    policy = transferable(recipe.learner.build(specification(environment), seed), fix="leave --collectors out")
    extras = recipe.learner.sampling.extras
    return SegmentCollector(environment, policy, seed=recipe.seed, birth=birth, extras=extras)


if __name__ == "__main__":
    serve(inherited(int(sys.argv[1])), collector_of)
