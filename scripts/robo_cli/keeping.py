"""What a training keeps beside its checkpoints: every episode as a dataset, and the policy of every evaluation."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from robo_cli.online_reward import drawn_arguments
from robo_cli.recipe import Recipe
from robo_datasets.dataset import DESCRIPTION, Dataset, DatasetWriter
from robo_datasets.repair import repair
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation import Evaluation
from robo_rl.protocols import Policy, Training
from robo_rl.runs import Run
from robo_rl.spec import EnvironmentSpec, specification
from robo_rl.training import OnlineTraining
from robo_rl.types import Episode

FOLDER = "episodes"


def require_episodes(recipe: Recipe[Any], training: Training) -> None:
    """Raises InvalidSetting where a recipe wants episodes kept of a training that makes none."""
    if recipe.record_episodes and not isinstance(training, OnlineTraining):
        raise InvalidSetting(
            f"The learner {recipe.algorithm} keeps no training episodes.",
            got="record_episodes: true",
            allowed="learners that act step by step in the loop of robo_rl.training, such as sac and rlpd",
            fix="set record_episodes to false; `robo-rl record ENV --policy RUN` records the trained policy",
        )


@contextmanager
def kept(run: Run, recipe: Recipe[Any], training: Training) -> Iterator[None]:
    """Stores the episodes of a training in RUN/episodes while the block runs, where the recipe asks for it."""
    require_episodes(recipe, training)
    if not recipe.record_episodes or not isinstance(training, OnlineTraining):
        yield
        return
    with _dataset(run, recipe, specification(training.environment)).writer() as writer:
        repair(writer, thorough=False)
        training.keep_episode = _sink(run, writer)
        yield


def keeping_policies(
    run: Run, recipe: Recipe[Any], training: Training, evaluate: Callable[[Policy], Evaluation]
) -> Callable[[Policy], Evaluation]:
    """Returns an evaluation that first keeps the learner whose policy it judges, where the recipe asks for it."""
    if not recipe.record_episodes or not isinstance(training, OnlineTraining):
        return evaluate

    def evaluate_and_keep(policy: Policy) -> Evaluation:
        run.keep_policy(training.step, training.learner.state_dict())
        return evaluate(policy)

    return evaluate_and_keep


def _dataset(run: Run, recipe: Recipe[Any], spec: EnvironmentSpec) -> Dataset:
    """Returns the dataset of a run: what its reward looked at beside what the policy saw, and the environment's own rewards.

    Made under another name first: a kill while it is made leaves nothing in its place.
    """
    path, unfinished = run.path / FOLDER, run.path / f"{FOLDER}.new"
    if not (path / DESCRIPTION).exists():
        shutil.rmtree(unfinished, ignore_errors=True)  # no episode was ever stored there
        card = {
            "how": "every training episode of a run, exploration included",
            "environment": recipe.environment.name,
            "arguments": drawn_arguments(recipe),
            "run": {"name": run.path.name, "commit": run.description["commit"], "seed": recipe.seed, "steps": recipe.steps},
        }
        Dataset.create(unfinished, spec, card)
        unfinished.rename(path)
    return Dataset(path)


def _sink(run: Run, writer: DatasetWriter) -> Callable[[Episode], None]:
    """Returns what stores an episode once: a run that goes on exactly makes those since its checkpoint again.

    An episode's identity is determined by the run and the episode's number. After a resume that was not exact another history
    begins, whose episodes have identities of their own; those of the history that was left stay.
    """
    circumstances = run.description
    history = [event["step"] for event in circumstances["resumes"] if event["kind"] == "warm"]
    recipe = (run.path / "recipe.yaml").read_text()
    present = {entry.identity for entry in writer.dataset.entries()}

    def keep(episode: Episode) -> None:
        number = episode.metadata["training_episode"]
        text = json.dumps([recipe, circumstances["started"], history, number])
        identity = hashlib.sha256(text.encode()).hexdigest()[:32]
        if identity not in present:
            writer.add(replace(episode, metadata={**episode.metadata, "source": run.path.name}), identity=identity)

    return keep
