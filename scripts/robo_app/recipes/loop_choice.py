"""Features that a recipe needs of its training loop, and the choice of the loop."""

from __future__ import annotations

from typing import Any

from robo_app.recipes.recipe import Recipe
from robo_rl.environments.wrapping import read_wrappers
from robo_rl.protocols.contract import Feature, Loop
from robo_rl.training.compatibility import Capabilities, require_loop

ROBOT = "robot:"
"""Prefix of the environment names of served robots."""


def loop_of(recipe: Recipe[Any], *, collectors: bool = False) -> Loop:
    """Return the training loop for a recipe; raises InvalidSetting if no loop has all features that the recipe needs.

    collectors: True if collectors act in processes of their own.
    """
    return require_loop(recipe.algorithm, recipe.learner, asked_of(recipe, collectors=collectors))


def asked_of(recipe: Recipe[Any], *, collectors: bool = False) -> frozenset[Feature]:
    """Return which optional features of a training loop, such as a person or a reward model, a recipe needs.

    collectors: True if collector processes act.
    """
    name, arguments = recipe.environment.name, recipe.environment.arguments
    asked: dict[Feature, object] = {
        Feature.PERSON: recipe.human.kind,
        Feature.REWARD: recipe.reward.name,
        Feature.COLLECTORS: collectors,
        Feature.LEARNER_PROCESS: _wants_process(recipe),
        Feature.RECORDING: recipe.record_episodes,
        Feature.INITIAL_RUN: recipe.initial.run,
        Feature.DEMONSTRATIONS: recipe.demonstrations.episodes or recipe.demonstrations.dataset,
        Feature.ONLINE_PHASE: recipe.online.steps,
        Feature.SHARED: "://" in name or "host" in arguments,  # one server, or one for each environment
        Feature.ENVIRONMENTS: recipe.environments > 1,
        Feature.CURRICULUM: recipe.curriculum.sampler,
    }
    of_wrappers = (wrapper.asks for wrapper in read_wrappers(recipe.environment.wrappers))
    return frozenset(feature for feature, value in asked.items() if value).union(*of_wrappers)


def _wants_process(recipe: Recipe[Any]) -> bool:
    if recipe.learner_process == "auto":
        can = Feature.LEARNER_PROCESS in Capabilities.of(recipe.learner).features
        return can and recipe.environment.name.startswith(ROBOT)
    return recipe.learner_process == "on"
