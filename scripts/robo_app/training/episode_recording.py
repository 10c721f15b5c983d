"""Recording of a training: every episode in a dataset, and the policy of every evaluation."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from robo_app.recipes.environments import drawn_arguments
from robo_app.recipes.recipe import Recipe
from robo_app.training.extension import first_recipe
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DESCRIPTION, Dataset, DatasetWriter
from robo_datasets.repair import repair
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.protocols.components import EpisodeRecorder, Policy, Training
from robo_rl.rollout.journal import CRASH, Journal, recover
from robo_rl.runs.run import Run
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.training.actor_learner.acting import ActingTraining
from robo_rl.training.compatibility import needs_of
from robo_rl.training.off_policy import OnlineTraining
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.types import Episode, StateDict, Transition

FOLDER = "episodes"
Recorded = OnlineTraining[EnvironmentSteps] | ActingTraining
"""Training with episodes that can be recorded."""
STEPS_DONE, INTERRUPTED = "steps_done", "interrupted"
"""Stop reasons of an episode that was cut off by the last step of the training or by an interruption."""


class RunEpisodes:
    """Recorder that writes each training episode of a run once into RUN/episodes.

    An episode is stored when it ends. An exactly resumed run repeats the episodes since its checkpoint, with the same
    identities. After an inexact resume the episodes get new identities, and the earlier ones stay. If the environment cannot
    be replayed, each step is stored at once in a journal, and a resumed run learns again from the stored episodes since its
    checkpoint.
    """

    def __init__(self) -> None:
        self._writer: DatasetWriter | None = None
        self._journal: Journal | None = None
        self._is_journaled = self._is_told_again = False
        self._run_name = ""
        self._origin: list[Any] = []
        """Facts of the run that determine the identity of an episode, together with its number."""
        self._stored: dict[str, Entry] = {}

    @contextmanager
    def open(self, run: Run, recipe: Recipe[Any], training: Recorded) -> Iterator[None]:
        """Record the episodes of a training in the run's dataset while the block runs."""
        is_apart = isinstance(training, ActingTraining)
        self._is_journaled = is_apart or not training.replays
        self._is_told_again = self._is_journaled and not is_apart  # if it is apart its learner reads the steps from a log
        self._run_name, self._origin = run.path.name, [run.description["started"]]
        if not self._is_journaled:
            history = [event["step"] for event in run.description["resumes"] if event["kind"] == "warm"]
            self._origin = [first_recipe(run), *self._origin, history]
        self._spec = specification(training.source.environment)
        with _dataset(run, recipe, self._spec).writer() as writer:
            repair(writer, thorough=False)
            self._writer, self._stored = writer, {entry.identity: entry for entry in writer.dataset.entries()}
            try:
                yield
                self._cut(STEPS_DONE)
            except KeyboardInterrupt:
                self._cut(INTERRUPTED)
                raise
            finally:
                if self._journal is not None:
                    self._journal.close()
                self._writer = self._journal = None
                repair(writer, thorough=False)

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Open the journal of training episode `number`; does nothing if the environment can repeat the episode."""
        if self._writer is not None and self._is_journaled:
            self._journal = Journal(self._writer.dataset.path / "journal", self._identity(number), self._spec)
            self._journal.begin(observation, seed=seed, instruction=instruction, source=self._run_name)

    def step(self, transition: Transition) -> None:
        """Add a step to the journal, if there is one."""
        if self._journal is not None:
            self._journal.step(transition)

    def keep(self, episode: Episode) -> None:
        """Store a finished episode and remove its journal."""
        if self._writer is None:
            return
        identity = self._identity(episode.metadata["training_episode"])
        if identity not in self._stored:
            kept = replace(episode, metadata={**episode.metadata, "source": self._run_name})
            self._stored[identity] = self._writer.add(kept, identity=identity)
        self._remove_journal()

    def recorded(self, number: int) -> Episode | None:
        """Return training episode `number` if it was recorded before a crash and is not simulated again; None otherwise."""
        entry = self._stored.get(self._identity(number)) if self._is_told_again else None
        return None if entry is None or self._writer is None else self._writer.dataset.read(entry)

    def _cut(self, stop_reason: str) -> None:
        """Store the running episode as truncated, if it has a journal."""
        if self._journal is None or self._writer is None:
            return
        self._journal.close()
        if (found := recover(self._journal.path)) is not None:
            episode, _ = found
            if episode.stop_reason == CRASH:
                episode = replace(episode, stop_reason=stop_reason)
            self._writer.add(episode, identity=self._journal.path.stem)
        self._remove_journal()

    def _remove_journal(self) -> None:
        if self._journal is not None:
            self._journal.remove()
            self._journal = None

    def _identity(self, number: int) -> str:
        return hashlib.sha256(json.dumps([*self._origin, number]).encode()).hexdigest()[:32]


def recording(
    run: Run, recipe: Recipe[Any], training: Training, recorder: EpisodeRecorder | None
) -> AbstractContextManager[None]:
    """Return a context in which the episodes of a training are recorded; without a recorder it does nothing."""
    if isinstance(recorder, RunEpisodes) and isinstance(training, OnlineTraining | ActingTraining):
        return recorder.open(run, recipe, training)
    return nullcontext()


def keeping_policies(
    run: Run, recipe: Recipe[Any], training: Training, evaluate: Callable[[Policy], Evaluation]
) -> Callable[[Policy], Evaluation]:
    """Return an evaluation function that first stores the evaluated learner, if the recipe records episodes."""
    if not recipe.record_episodes or not isinstance(training, OnlineTraining | ActingTraining):
        return evaluate

    def evaluate_and_keep(policy: Policy) -> Evaluation:
        run.keep_policy(training.step, training.learner.state_dict())
        return evaluate(policy)

    return evaluate_and_keep


def policy_parts(recipe: Recipe[Any], training: Training) -> dict[str, StateDict]:
    """Return the parts of a training from which its policy is restored, without replay memory and environments."""
    learner = getattr(training, "learner", None)
    if learner is not None and not needs_of(recipe.learner).trains_itself:
        return {"learner": learner.state_dict()}
    return {name: part for name, part in training.state_dict().items() if name not in ("replay", "environments")}


def _dataset(run: Run, recipe: Recipe[Any], spec: EnvironmentSpec) -> Dataset:
    """Return the dataset of a run, with inputs of its reward, observations of the policy, and the environment's own rewards.

    It is created under another name first, so that a kill leaves no partial dataset.
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
