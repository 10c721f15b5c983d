"""Environments of a recipe: with the observations of the policy, and with additional pictures for its reward model."""

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
    """The two specs of a recipe's environment: for the reward and for the policy."""

    @property
    def drawn(self) -> EnvironmentSpec:
        """Spec with the additional pictures that the reward reads."""

    @property
    def seen(self) -> EnvironmentSpec:
        """Spec as the policy sees it, without the pictures of the reward."""


@dataclass(frozen=True)
class KnownSpecs:
    """Specs that are known already, so that no environment has to be made for them."""

    drawn: EnvironmentSpec
    seen: EnvironmentSpec


class RecipeEnvironments:
    """Factory of the training environments of a recipe, with the pictures of its reward; single ones or vector environments.

    To read the spec an environment must be made; it is the first that a call returns, or `close` closes it.
    """

    def __init__(self, recipe: Recipe[Any]) -> None:
        self._recipe = recipe
        self._spare: gymnasium.Env[Any, Any] | None = None

    @cached_property
    def drawn(self) -> EnvironmentSpec:
        """Spec with the additional pictures that the reward reads."""
        self._spare = training_environment(self._recipe)
        return specification(self._spare)

    @cached_property
    def seen(self) -> EnvironmentSpec:
        """Spec as the policy sees it, without the pictures of the reward."""
        return spec_of(self._recipe) if self._recipe.reward.arguments else self.drawn

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Return a new environment, in the recipe's curriculum if it has one."""
        spare, self._spare = self._spare, None
        return self._in_curriculum(training_environment(self._recipe) if spare is None else spare)

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return a vector environment with autoreset in the same step; batched simulation uses the recipe's threads."""
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
        """Return an environment wrapped in the recipe's curriculum, or itself if the recipe has none."""
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
    """Return a new environment of one variant of the recipe's curriculum."""
    here = recipe.environment.with_more(recipe.reward.arguments).with_more(variant.everything)
    return make_environment(variant.name or here.name, **here.everything)


def training_environment(recipe: Recipe[Any]) -> gymnasium.Env[Any, Any]:
    """Return a new training environment, with all wrappers and with the pictures of the reward."""
    there = recipe.environment.with_more(recipe.reward.arguments)
    return make_environment(there.name, **there.everything)


def environment_of(recipe: Recipe[Any], **more: Any) -> gymnasium.Env[Any, Any]:
    """Return a new environment as the policy sees it, without wrappers that only trainings have; `more`: further arguments."""
    return make_environment(recipe.environment.name, **recipe.arguments, **more)


def spec_of(recipe: Recipe[Any]) -> EnvironmentSpec:
    """Return the spec of the recipe's environment, as its policy sees it."""
    environment = environment_of(recipe)
    spec = specification(environment)
    environment.close()
    return spec


def drawn_arguments(recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the arguments of the environment with the pictures of the reward, without wrappers that only trainings have."""
    return recipe.environment.in_evaluation(recipe.reward.arguments, ()).everything


def drawn_environment(recipe: Recipe[Any]) -> gymnasium.Env[Any, Any]:
    """Return a new environment with the pictures of the reward, without wrappers that only trainings have."""
    return make_environment(recipe.environment.name, **drawn_arguments(recipe))
