"""What a training keeps beside its checkpoints: every episode as a dataset, and the policy of every evaluation."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from robo_cli.extension import first_recipe
from robo_cli.online_reward import drawn_arguments
from robo_cli.recipe import Recipe
from robo_datasets.dataset import DESCRIPTION, Dataset, DatasetWriter
from robo_datasets.journal import CRASH, Journal, recover
from robo_datasets.repair import repair
from robo_rl.actor_learner.acting import ActingTraining
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation import Evaluation
from robo_rl.protocols import Policy, Training
from robo_rl.runs import Run
from robo_rl.spec import EnvironmentSpec, Observation, specification
from robo_rl.training import OnlineTraining
from robo_rl.types import Episode, Transition

FOLDER = "episodes"
STEPS_DONE, INTERRUPTED = "steps_done", "interrupted"
"""Stop reasons of an episode under way when the training had taken its last step, or was interrupted: nothing crashed."""


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
        is_apart = isinstance(training, ActingTraining)
        if training.replays and not is_apart:
            training.keep_episode = EpisodeStore(run, writer).keep
            yield
            return
        store = LivedEpisodes(run, writer)
        training.keep_episode, training.journal = store.keep, store
        if not is_apart:  # whose learner reads what was lived in a log of its own
            training.recorded = store.recorded
        try:
            yield
            store.cut(STEPS_DONE)
        except KeyboardInterrupt:
            store.cut(INTERRUPTED)
            raise
        finally:
            store.close()
            repair(writer, thorough=False)


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


class EpisodeStore:
    """Stores an episode once: a run that goes on exactly makes those since its checkpoint again.

    An episode's identity is determined by the run and the episode's number. After a resume that was not exact another history
    begins, whose episodes have identities of their own; those of the history that was left stay.
    """

    def __init__(self, run: Run, writer: DatasetWriter) -> None:
        self._run, self._writer = run, writer
        self._recipe = first_recipe(run)
        self._started = run.description["started"]
        self._history = [event["step"] for event in run.description["resumes"] if event["kind"] == "warm"]
        self._stored = {entry.identity: entry for entry in writer.dataset.entries()}

    def keep(self, episode: Episode) -> None:
        """Stores a finished episode."""
        identity = self._identity(episode.metadata["training_episode"])
        if identity not in self._stored:
            kept = replace(episode, metadata={**episode.metadata, "source": self._run.path.name})
            self._stored[identity] = self._writer.add(kept, identity=identity)

    def _identity(self, number: int) -> str:
        text = json.dumps([self._recipe, self._started, self._history, number])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class LivedEpisodes(EpisodeStore):
    """Stores what happened once and for all, each step as soon as it was taken, and tells it again after a crash.

    There is one history: steps since a checkpoint are learnt from again, so that no number has two episodes.
    """

    def __init__(self, run: Run, writer: DatasetWriter) -> None:
        super().__init__(run, writer)
        self._journal: Journal | None = None

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Training episode `number` begins."""
        dataset = self._writer.dataset
        self._journal = Journal(dataset.path / "journal", self._identity(number), dataset.spec)
        self._journal.begin(observation, seed=seed, instruction=instruction, source=self._run.path.name)

    def step(self, transition: Transition) -> None:
        """It went on."""
        if self._journal is not None:
            self._journal.step(transition)

    def keep(self, episode: Episode) -> None:
        """Stores a finished episode; its journal has served."""
        super().keep(episode)
        if self._journal is not None:
            self._journal.remove()
            self._journal = None

    def recorded(self, number: int) -> Episode | None:
        """Returns the training episode of that number where there is one."""
        entry = self._stored.get(self._identity(number))
        return None if entry is None else self._writer.dataset.read(entry)

    def _identity(self, number: int) -> str:
        return hashlib.sha256(json.dumps([self._started, number]).encode()).hexdigest()[:32]

    def cut(self, stop_reason: str) -> None:
        """Store the episode that is under way, if there is one, as truncated here."""
        if self._journal is None:
            return
        self._journal.close()
        if (found := recover(self._journal.path)) is not None:
            episode, _ = found
            if episode.stop_reason == CRASH:
                episode = replace(episode, stop_reason=stop_reason)
            self._writer.add(episode, identity=self._journal.path.stem)
        self._journal.remove()
        self._journal = None

    def close(self) -> None:
        """Ends the journal of an episode that is under way."""
        if self._journal is not None:
            self._journal.close()
