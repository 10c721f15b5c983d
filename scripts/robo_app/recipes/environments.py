"""Environments of a recipe: with the policy's observations, and with the pictures of its reward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import gymnasium
from gymnasium.vector import AutoresetMode

from robo_app.recipes.recipe import EnvironmentSettings, Recipe
from robo_datasets.dataset import Dataset
from robo_rl.environments.curriculum import CurriculumEnv, CurriculumTasks
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import Episode


class Specs(Protocol):
    """The specs of a recipe's environment."""

    @property
    def drawn(self) -> EnvironmentSpec:
        """With the pictures of the reward."""

    @property
    def seen(self) -> EnvironmentSpec:
        """As the policy sees it."""


@dataclass(frozen=True)
class KnownSpecs:
    """Specs that were read before, so that no environment is made."""

    drawn: EnvironmentSpec
    seen: EnvironmentSpec


class RecipeEnvironments:
    """Makes the environment of a recipe, drawn for its reward, one by one or many in one object (VectorFactory).

    The one that is made to read the spec is the first that is handed out; `close` closes it if it was not handed out.
    """

    def __init__(self, recipe: Recipe[Any]) -> None:
        self._recipe = recipe
        self._spare: gymnasium.Env[Any, Any] | None = None

    @cached_property
    def drawn(self) -> EnvironmentSpec:
        """With the pictures of the reward."""
        self._spare = training_environment(self._recipe)
        return specification(self._spare)

    @cached_property
    def seen(self) -> EnvironmentSpec:
        """As the policy sees it."""
        return spec_of(self._recipe) if self._recipe.reward.arguments else self.drawn

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment."""
        spare, self._spare = self._spare, None
        return self._in_curriculum(training_environment(self._recipe) if spare is None else spare)

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return environments with autoreset in the same step, simulated by the recipe's threads."""
        recipe = self._recipe
        if recipe.curriculum.sampler:
            return SequentialEnvironments(
                lambda: self._in_curriculum(training_environment(recipe)), num_envs, autoreset_mode=AutoresetMode.SAME_STEP
            )
        there = recipe.environment.with_more(recipe.reward.arguments)
        return make_vector_environment(
            there.name, num_envs, threads=recipe.threads, autoreset_mode=AutoresetMode.SAME_STEP, **there.everything
        )

    def _in_curriculum(self, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Return the environment in the recipe's curriculum; itself without one."""
        recipe = self._recipe
        if not recipe.curriculum.sampler:
            return environment
        easier = [variant_environment(recipe, variant) for variant in recipe.curriculum.variants]
        return CurriculumEnv([*easier, environment], self._tasks)

    @cached_property
    def _tasks(self) -> CurriculumTasks:
        curriculum = self._recipe.curriculum
        dataset, episodes = self._teacher if curriculum.dataset else (None, [])
        spec = None if dataset is None else dataset.spec
        return CurriculumTasks(curriculum, len(curriculum.variants) + 1, episodes, spec)

    @cached_property
    def _teacher(self) -> tuple[Dataset, list[Episode]]:
        dataset = Dataset(Path(self._recipe.curriculum.dataset))
        return dataset, [dataset.read(entry) for entry in dataset.entries()]

    def close(self) -> None:
        """Close the environment that was made to read the spec, unless it was handed out."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None


def variant_environment(recipe: Recipe[Any], variant: EnvironmentSettings) -> gymnasium.Env[Any, Any]:
    """Return a new environment of a variant of the recipe's curriculum."""
    here = recipe.environment.with_more(recipe.reward.arguments).with_more(variant.everything)
    return make_environment(variant.name or here.name, **here.everything)


def training_environment(recipe: Recipe[Any]) -> gymnasium.Env[Any, Any]:
    """Return a new environment of the training: drawn for its reward, in all its wrappers."""
    there = recipe.environment.with_more(recipe.reward.arguments)
    return make_environment(there.name, **there.everything)


def environment_of(recipe: Recipe[Any], **more: Any) -> gymnasium.Env[Any, Any]:
    """Return a fresh environment of the recipe, as its policy sees it."""
    return make_environment(recipe.environment.name, **recipe.arguments, **more)


def spec_of(recipe: Recipe[Any]) -> EnvironmentSpec:
    """Return the spec of the recipe's environment, as its policy sees it."""
    environment = environment_of(recipe)
    spec = specification(environment)
    environment.close()
    return spec


def drawn_arguments(recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the arguments of the environment in which its reward's pictures are drawn."""
    return recipe.environment.in_evaluation(recipe.reward.arguments, ()).everything


def drawn_environment(recipe: Recipe[Any]) -> gymnasium.Env[Any, Any]:
    """Return a new environment with the pictures of the recipe's reward; the plain one if it needs none."""
    return make_environment(recipe.environment.name, **drawn_arguments(recipe))
