"""What a training keeps beside its checkpoints: every episode as a dataset, and the policy of every evaluation."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from robo_cli.environments import drawn_arguments
from robo_cli.extension import first_recipe
from robo_cli.recipe import Recipe
from robo_datasets.dataset import DESCRIPTION, Dataset, DatasetWriter
from robo_datasets.repair import repair
from robo_rl.actor_learner.acting import ActingTraining
from robo_rl.evaluation import Evaluation
from robo_rl.journal import CRASH, Journal, recover
from robo_rl.protocols import EpisodeRecorder, Policy, Training
from robo_rl.runs import Run
from robo_rl.spec import EnvironmentSpec, Observation, specification
from robo_rl.step_sources import EnvironmentSteps
from robo_rl.training import OnlineTraining
from robo_rl.types import Episode, Transition

FOLDER = "episodes"
Recorded = OnlineTraining[EnvironmentSteps] | ActingTraining
"""Trainings whose episodes can be recorded."""
STEPS_DONE, INTERRUPTED = "steps_done", "interrupted"
"""Stop reasons of an episode under way when the training had taken its last step, or was interrupted: nothing crashed."""


class RunEpisodes:
    """Records the training episodes of a run in RUN/episodes while it is open (robo_rl.protocols.EpisodeRecorder)."""

    def __init__(self) -> None:
        self._store: EpisodeStore | None = None

    @contextmanager
    def open(self, run: Run, recipe: Recipe[Any], training: Recorded) -> Iterator[None]:
        """Record in a run while the block runs."""
        with _dataset(run, recipe, specification(training.source.environment)).writer() as writer:
            repair(writer, thorough=False)
            is_apart = isinstance(training, ActingTraining)
            if training.replays and not is_apart:
                self._store = EpisodeStore(run, writer)
            else:  # if it is apart its learner reads the steps from a log of its own
                self._store = LivedEpisodes(run, writer, tells_again=not is_apart)
            try:
                yield
                self._store.cut(STEPS_DONE)
            except KeyboardInterrupt:
                self._store.cut(INTERRUPTED)
                raise
            finally:
                self._store.close()
                self._store = None
                repair(writer, thorough=False)

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Training episode `number` begins."""
        if self._store is not None:
            self._store.begin(number, observation, seed=seed, instruction=instruction)

    def step(self, transition: Transition) -> None:
        """It went on."""
        if self._store is not None:
            self._store.step(transition)

    def keep(self, episode: Episode) -> None:
        """It has ended."""
        if self._store is not None:
            self._store.keep(episode)

    def recorded(self, number: int) -> Episode | None:
        """Returns the training episode of that number, if it was recorded before a crash and is not learnt from yet."""
        return None if self._store is None else self._store.recorded(number)


def recording(
    run: Run, recipe: Recipe[Any], training: Training, recorder: EpisodeRecorder | None
) -> AbstractContextManager[None]:
    """Return what records the episodes of a training while a block runs, nothing without a recorder."""
    if isinstance(recorder, RunEpisodes) and isinstance(training, OnlineTraining | ActingTraining):
        return recorder.open(run, recipe, training)
    return nullcontext()


def keeping_policies(
    run: Run, recipe: Recipe[Any], training: Training, evaluate: Callable[[Policy], Evaluation]
) -> Callable[[Policy], Evaluation]:
    """Returns an evaluation that first keeps the learner whose policy it judges, where the recipe asks for it."""
    if not recipe.record_episodes or not isinstance(training, OnlineTraining | ActingTraining):
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

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Nothing is stored before an episode has ended."""

    def step(self, transition: Transition) -> None:
        """Nothing is stored before an episode has ended."""

    def recorded(self, number: int) -> Episode | None:
        """Returns None: episodes are simulated again."""
        return None

    def cut(self, stop_reason: str) -> None:
        """Leaves the episode under way to be made again."""

    def close(self) -> None:
        """Nothing is open."""

    def _identity(self, number: int) -> str:
        text = json.dumps([self._recipe, self._started, self._history, number])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class LivedEpisodes(EpisodeStore):
    """Stores what happened once and for all, each step as soon as it was taken, and tells it again after a crash.

    There is one history: steps since a checkpoint are learnt from again, so that no number has two episodes.
    """

    def __init__(self, run: Run, writer: DatasetWriter, *, tells_again: bool = True) -> None:
        super().__init__(run, writer)
        self._tells_again = tells_again
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
        entry = self._stored.get(self._identity(number)) if self._tells_again else None
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
