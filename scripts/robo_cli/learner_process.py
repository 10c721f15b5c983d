"""The learner's process of a training: which trainings have one, how it is started, what runs in it.

RUN/learner/  steps/ (the log)  demonstrations/  spec.json  log.txt  lock
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from robo_cli.assembly import acting_parts, demonstrations_of, recipe_of
from robo_cli.online_reward import reward_of
from robo_cli.person import CONSOLE
from robo_cli.recipe import Recipe
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_datasets.step_log import StepLog, StepReader
from robo_real.priority import run_as_others, running_first
from robo_rl.actor_learner.acting import ActingTraining, Apart
from robo_rl.actor_learner.learning import LearningTraining, learn
from robo_rl.actor_learner.process import LearnerProcess, inherited
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.protocols import OnlineRewards, SelfTrainedConfig, Training
from robo_rl.recorded import ReplayableEpisodes
from robo_rl.runs import Run, write_text
from robo_rl.spec import EnvironmentSpec, specification
from robo_rl.types import Episode

FOLDER, STEPS, DEMONSTRATIONS, SPEC, LOG, LOCK = "learner", "steps", "demonstrations", "spec.json", "log.txt", "lock"
NICE = 10
"""of a learner beside a robot, which comes first"""


def learns_apart(recipe: Recipe[Any]) -> bool:
    """Returns whether a recipe's learner gets a process of its own; raises InvalidSetting where it is asked to and cannot."""
    acts_and_learns = bool(recipe.initial.run) or recipe.human.kind == CONSOLE
    if recipe.learner_process == "off":
        return False
    if recipe.learner_process == "auto" and (acts_and_learns or not _is_on_robot(recipe)):
        return False
    if acts_and_learns:
        raise InvalidSetting(
            "A training that begins with a run, or has a person at the console, acts and learns in one process so far.",
            got="learner_process: on",
            fix="leave learner_process out",
        )
    sampling = getattr(recipe.learner, "sampling", None)
    steps_online = sampling is not None and sampling.offline_fraction < 1.0
    if not isinstance(recipe.learner, SelfTrainedConfig) and steps_online:
        return True
    if recipe.learner_process == "auto":
        return False
    raise InvalidSetting(
        f"The learner {recipe.algorithm} cannot have a process of its own.",
        got="learner_process: on",
        allowed="learners that act step by step from the first step on, such as sac, rlpd and hil-serl",
        fix="set learner_process to off",
    )


def acting_training(run: Run, recipe: Recipe[Any], reward: OnlineRewards | None) -> ActingTraining:
    """Returns the acting half of a training, whose learner is being started; its folder was prepared."""
    environment, learner, supervisor = acting_parts(recipe, reward)
    folder = run.path / FOLDER
    step = run.load().step if run.has_checkpoint else 0
    log = StepLog(folder / STEPS, specification(environment), step)
    process = LearnerProcess([sys.executable, "-m", "robo_cli.learner_process", str(run.path)], folder / LOG)
    settings: dict[str, Any] = {"steps": recipe.steps, "seed": recipe.seed, "supervisor": supervisor}
    return ActingTraining(environment, learner, recipe.learner.sampling, Apart(log, process), **settings)


def is_prepared(run: Run) -> bool:
    """Returns whether a run's learner has, or had, a process of its own."""
    return (run.path / FOLDER / SPEC).exists()


def prepare(run: Run, drawn: EnvironmentSpec, demonstrations: Sequence[Episode]) -> None:
    """Writes what a learner needs beside the recipe. drawn: the environment's spec, with what is drawn for the reward."""
    folder = run.path / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed before it had a learner
    folder.mkdir()
    if demonstrations and not isinstance(demonstrations, ReplayableEpisodes):
        card = {"how": f"demonstrations of the run {run.path.name}"}
        with Dataset.create(folder / DEMONSTRATIONS, run.spec, card).writer() as writer:
            for episode in demonstrations:
                writer.add(episode)
    write_text(folder / SPEC, json.dumps(drawn.to_json()))


@contextmanager
def ended(training: Training, tell: Callable[[str], None]) -> Iterator[None]:
    """Gives the block's training its priority; ends its learner, where it has one, with everything learnt and saved."""
    if not isinstance(training, ActingTraining):
        yield
        return
    training.process.tell = tell
    with running_first() if training.is_in_real_time else nullcontext():
        try:
            yield
        except RunError:  # the learner cannot go on, or nothing can be written
            training.kill()
            raise
        except BaseException:
            training.close()
            raise
        training.close()


def main(path: str, descriptor: str) -> int:
    """Learns for the acting process at the other end of an inherited socket."""
    connection, run = inherited(int(descriptor)), Run(Path(path))
    recipe = recipe_of(run)
    if _is_on_robot(recipe):
        run_as_others()
        os.nice(NICE)
    torch.set_num_threads(recipe.threads)
    folder = run.path / FOLDER
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one whose acting process was killed may still be saving
        training = _learning(run, recipe)
        return learn(training, connection, run.path / "checkpoints", partial(StepReader, folder / STEPS))


def _learning(run: Run, recipe: Recipe[Any]) -> LearningTraining:
    folder = run.path / FOLDER
    drawn, reward = EnvironmentSpec.from_json(json.loads((folder / SPEC).read_text())), reward_of(recipe)
    return LearningTraining(
        drawn,
        recipe.learner.build(drawn if reward is None else reward.visible(drawn), recipe.seed),
        recipe.learner.sampling,
        steps=recipe.steps,
        seed=recipe.seed,
        demonstrations=_demonstrations(folder, recipe, reward),
        is_corrected=bool(recipe.human.kind),
        rewards=None if reward is None else reward.running(1),
    )


def _demonstrations(folder: Path, recipe: Recipe[Any], reward: OnlineRewards | None) -> Sequence[Episode]:
    stored = folder / DEMONSTRATIONS
    if (stored / DESCRIPTION).exists():
        return list(Dataset(stored))
    return demonstrations_of(recipe, reward)[0] if recipe.demonstrations.dataset else []


def _is_on_robot(recipe: Recipe[Any]) -> bool:
    return recipe.environment.name.startswith("robot:")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
