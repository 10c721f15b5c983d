"""Complete a recipe with settings that come from its dataset, so that the recipe of a run has all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from robo_app.recipes.recipe import EnvironmentSettings, Recipe
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_datasets.labels import LabelSet
from robo_rl.errors import DatasetNotFound, InvalidSetting
from robo_rl.runs.run import Run
from robo_rl.training.compatibility import own_number


def learnt_from(recipe: Recipe[Any]) -> dict[str, Any]:
    """Return facts about a recipe's recorded episodes and labels for run.json, with hashes over their contents."""
    settings = recipe.demonstrations
    dataset = Dataset(Path(settings.dataset))
    entries = dataset.entries()[: settings.episodes or None]
    facts = {"path": settings.dataset, "episodes": len(entries), "content": content_hash(entries)}
    if settings.labels:
        labels = LabelSet.existing(dataset, settings.labels)
        makers = [f"{model} ({weights})" for model, weights in sorted(labels.makers)]
        facts |= {"labels": settings.labels, "labels_content": labels.digest(entries), "labels_of": makers}
    return facts


def with_dataset(recipe: Recipe[Any], dataset: str, labels: str = "") -> Recipe[Any]:
    """Return the recipe with another dataset and other labels; an empty name changes nothing."""
    before = recipe.demonstrations
    named = replace(before, dataset=dataset or before.dataset, labels=labels or before.labels)
    return replace(recipe, demonstrations=named)


def with_environment(recipe: Recipe[Any], name: str) -> Recipe[Any]:
    """Return the recipe with another environment; an empty name changes nothing."""
    return replace(recipe, environment=replace(recipe.environment, name=name)) if name else recipe


def at_its_place(run: Run, recipe: Recipe[Any], dataset: str) -> Recipe[Any]:
    """Return the recipe of a run with a new path of its dataset; an empty path changes nothing.

    Raises DatasetNotFound if there is none, InvalidSetting if it lacks episodes or labels that the run
    learnt from.
    """
    if dataset and not recipe.demonstrations.dataset:
        raise InvalidSetting(f"The run {run.path.name} has no dataset.", got=f"--dataset {dataset}", fix="leave it out")
    moved = with_dataset(recipe, dataset)
    if not moved.demonstrations.dataset:
        return recipe
    try:
        found = learnt_from(moved)
    except DatasetNotFound as error:
        fix = f"robo-rl resume {run.path} --dataset PATH, where it lies now"
        raise DatasetNotFound("The dataset of the run is not there.", got=moved.demonstrations.dataset, fix=fix) from error
    known = run.description.get("dataset", found)
    if dataset and found["content"] != known["content"]:
        raise InvalidSetting(
            f"The dataset {dataset} does not begin with the episodes that the run learnt from.",
            got=f"content {found['content'][:16]}",
            allowed=f"content {known['content'][:16]}, {known['episodes']} episodes",
        )
    if found.get("labels_content") != known.get("labels_content", found.get("labels_content")):
        raise InvalidSetting(
            f"The labels {moved.demonstrations.labels!r} are others than those that the run learnt from.",
            got=f"content {found.get('labels_content')}, of {', '.join(found.get('labels_of', ()))}",
            allowed=f"content {known.get('labels_content')}, of {', '.join(known.get('labels_of', ()))}",
            fix="give the set back the labels of then, or train again; new labels under another --name keep the old ones",
        )
    return moved


def with_online_phase(recipe: Recipe[Any], steps: int = 0) -> Recipe[Any]:
    """Return the recipe with an online phase after its updates.

    steps: environment steps of the phase; 0 for the number in the recipe, or else as many as there are updates.
    """
    return replace(recipe, online=replace(recipe.online, steps=steps or recipe.online.steps or recipe.steps))


def with_environments(recipe: Recipe[Any]) -> Recipe[Any]:
    """Return the recipe with `environments` moved to the learner's own setting for it, if the learner has one."""
    own = own_number(recipe.learner)
    if not recipe.environments or not own:
        return recipe
    return replace(recipe, learner=replace(recipe.learner, **{own: recipe.environments}), environments=0)


def completed(recipe: Recipe[Any]) -> Recipe[Any]:
    """Return the recipe with environment and number of episodes taken from its dataset, if it does not set them.

    Arguments of the environment in the recipe are added to those of the dataset, or replace them. The number of episodes is
    fixed so that a run can be resumed after its dataset has grown. Raises InvalidSetting if no environment is named.
    """
    recipe = with_environments(recipe)
    settings = recipe.demonstrations
    if settings.dataset and not settings.episodes:
        if not (count := len(Dataset(Path(settings.dataset)))):
            raise InvalidSetting(f"The dataset {settings.dataset} has no episodes.", fix="record some: robo-rl record --append")
        recipe = replace(recipe, demonstrations=replace(settings, episodes=count))
    if recipe.environment.name:
        return recipe
    if not settings.dataset:
        raise InvalidSetting(
            f"The recipe {recipe.name} names no environment, and no dataset that was recorded in one.",
            fix="--environment NAME (`robo-rl envs` lists them; package.module:Class is one of your own), or --dataset DATASET",
        )
    card = Dataset(Path(settings.dataset)).card
    if not isinstance(card.get("environment"), str):
        raise InvalidSetting(
            f"The dataset {settings.dataset} does not say how its environment is made.",
            got=f"a card with {', '.join(card) or 'nothing'}",
            fix="--environment.name FAMILY/TASK, and --environment.arguments where it needs any",
        )
    recorded = EnvironmentSettings(card["environment"]).with_more(card.get("arguments") or {})
    return replace(recipe, environment=recorded.with_more(recipe.environment.everything))
