"""Learner process of a training: its files, its start, and its main function.

RUN/learner/  steps/ (the log)  demonstrations/  initial/ (the initial learner)  spec.json  log.txt  lock
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from robo_app.recipes.defaults import with_dataset
from robo_app.recipes.environments import KnownSpecs, Specs
from robo_app.recipes.loop_choice import ROBOT
from robo_app.recipes.online_reward import reward_of
from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import demonstrations_of, learner_of, recipe_of
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_real.console.operator_env import OperatorEnv
from robo_real.priority import drop_realtime, realtime_priority
from robo_rl.errors import RunError
from robo_rl.protocols.components import Learner, Training
from robo_rl.replay.recorded import ReplayableEpisodes
from robo_rl.rollout.step_log import StepLog, StepReader
from robo_rl.runs.checkpoints import Checkpoint, has_checkpoint, load_checkpoint, save_checkpoint
from robo_rl.runs.run import Run, write_text
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.system.durable_files import exclusive_lock
from robo_rl.system.plain_files import read_object
from robo_rl.system.supervised_process import inherited
from robo_rl.system.threads import use_threads
from robo_rl.training.actor_learner.acting import ActingTraining, LearnerConnection, acting_training
from robo_rl.training.actor_learner.learning import LearningTraining, learn
from robo_rl.training.actor_learner.process import LearnerProcess
from robo_rl.training.plan import Acting, TrainingPlan
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.types import Episode

FOLDER, STEPS, DEMONSTRATIONS, INITIAL = "learner", "steps", "demonstrations", "initial"
SPEC, LOG, LOCK = "spec.json", "log.txt", "lock"
NICE = 10
"""Niceness of a learner beside a robot, whose control loop has precedence."""


def acting_half(run: Run, recipe: Recipe[Any], plan: TrainingPlan, acting: Acting) -> ActingTraining:
    """Return the acting half of a training, and start its learner process; `prepare` must have written the learner's folder."""
    environment, learner, person = acting
    folder = run.path / FOLDER
    _take_over(folder, learner)
    step = run.load().step if run.has_checkpoint else 0
    log = StepLog(folder / STEPS, specification(environment), step)
    command = [sys.executable, "-m", "robo_app.training.learner_process", str(run.path), recipe.demonstrations.dataset]
    training = acting_training(
        environment,
        learner,
        plan.config.sampling,
        LearnerConnection(log, LearnerProcess(command, folder / LOG)),
        steps=plan.steps,
        seed=plan.seed,
        supervisor=person,
        recorder=plan.recorder,
        acts_at_once=plan.acts_at_once,
    )
    if isinstance(environment, OperatorEnv):
        environment.may_begin = training.may_begin
    return training


def is_prepared(run: Run) -> bool:
    """Return True if the files of a run's learner process have been written."""
    return (run.path / FOLDER / SPEC).exists()


def prepare(run: Run, plan: TrainingPlan, learner: Learner) -> None:
    """Write the files that the learner process needs beside the recipe.

    They include a copy of the initial learner, as its run may be removed or have continued when the process is restarted.
    """
    folder = run.path / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed before it had a learner
    folder.mkdir()
    demonstrations = plan.demonstrations
    if demonstrations and not isinstance(demonstrations, ReplayableEpisodes):
        card = {"how": f"demonstrations of the run {run.path.name}"}
        with Dataset.create(folder / DEMONSTRATIONS, run.spec, card).writer() as writer:
            for episode in demonstrations:
                writer.add(episode)
    if plan.initial is not None:
        save_checkpoint(folder / INITIAL, Checkpoint(0, {"learner": learner.state_dict()}))
    write_text(folder / SPEC, json.dumps(plan.spec.to_json()))  # of the environment, with the inputs of its reward


@contextmanager
def ended(training: Training, tell: Callable[[str], None]) -> Iterator[None]:
    """End a training's learner process, if any, at the end of the block, after it has learnt from all steps and saved.

    If no step was taken when an error ends the block, the process ends at once; steps that it has not learnt from stay in the
    log for `robo-rl resume`. tell: function that shows a line of text.
    """
    if not isinstance(training, ActingTraining):
        yield
        return
    training.process.tell = tell
    begun = training.step
    try:
        yield
    except BaseException as error:
        is_lost = isinstance(error, RunError)  # the learner cannot go on, or nothing can be written
        if is_lost or training.step == begun:
            training.kill()
        else:
            training.close()
        raise
    training.close()


def priority(training: Training) -> AbstractContextManager[object]:
    """Return a context with real-time priority if the training acts in real time.

    Threads that are started in the context inherit the priority; they should not write to a disk.
    """
    return realtime_priority() if isinstance(training, ActingTraining) and training.is_in_real_time else nullcontext()


def main(path: str, dataset: str, descriptor: str) -> int:
    """Learn for the acting process at the other end of an inherited socket. dataset: current path of the recipe's dataset."""
    connection, run = inherited(int(descriptor)), Run(Path(path))
    recipe = with_dataset(recipe_of(run), dataset)
    if recipe.environment.name.startswith(ROBOT):
        drop_realtime()
        os.nice(NICE)
    use_threads(recipe.threads)
    folder = run.path / FOLDER
    with exclusive_lock(folder / LOCK):  # the learner of a killed acting process may still be saving
        training = _learning(run, recipe)
        return learn(training, connection, run.path / "checkpoints", partial(StepReader, folder / STEPS))


def _learning(run: Run, recipe: Recipe[Any]) -> LearningTraining:
    folder = run.path / FOLDER
    drawn = EnvironmentSpec.from_json(read_object(folder / SPEC))
    specs = KnownSpecs(drawn, run.spec)
    reward = reward_of(recipe, specs)
    learner = learner_of(recipe, drawn if reward is None else reward.visible(drawn))
    _take_over(folder, learner)
    step_learner = ReplayLearner(
        learner,
        recipe.learner.sampling,
        seed=recipe.seed,
        stopwatch=Stopwatch(),
        demonstrations=_demonstrations(folder, recipe, specs),
        is_corrected=bool(recipe.human.kind),
        rewards=None if reward is None else reward.running(1),
    )
    return LearningTraining(step_learner, steps=recipe.steps)


def _take_over(folder: Path, learner: Learner) -> None:
    """Load the state of the stored initial learner, if any, into a new learner."""
    if has_checkpoint(folder / INITIAL):
        learner.load_state_dict(load_checkpoint(folder / INITIAL).parts["learner"])


def _demonstrations(folder: Path, recipe: Recipe[Any], specs: Specs) -> Sequence[Episode]:
    """Return the demonstrations from the learner's folder or a dataset; the robot may be gone or busy, and is not used."""
    stored = folder / DEMONSTRATIONS
    if (stored / DESCRIPTION).exists():
        return list(Dataset(stored))
    return demonstrations_of(recipe, None, specs)[0] if recipe.demonstrations.dataset else []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
