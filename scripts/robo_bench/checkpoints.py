"""Measure saving and restoring a checkpoint with its replay memory, against Stable-Baselines3's.

Ours is complete (networks, optimisers, generators, replay, the running episode), hashed, flushed to the disk and renamed
into place; Stable-Baselines3's is a zip and a pickle, neither flushed nor checked, and the running episode is lost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC as SB3SAC

from robo_bench.measurement import Case, Contestants, Effort, Trial, each, timed
from robo_policies.learners.sac import SACConfig
from robo_rl.environments.make import make_environment
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.off_policy import OnlineTraining, online_training
from robo_rl.training.step_sources import StepSource
from robo_rl.types import Transition

TASK = "HalfCheetah-v5"
ROWS = 20_000
"""Transitions in the replay memory."""


def cases(effort: Effort) -> list[Case]:
    """Return two cases: seconds that it takes to save a training's checkpoint, and to restore it."""
    verbs = ("save", "resume")
    return [Case(f"{verb} SAC on {TASK} with {ROWS} transitions", "s", partial(_contestants, verb)) for verb in verbs]


def _contestants(verb: str, effort: Effort, stack: ExitStack) -> Contestants:
    torch.set_num_threads(effort.cores)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ours, theirs = _our_training(), _stable_baselines3()
    path, zipped, pickled = folder / "ours", folder / "sb3.zip", folder / "sb3.pkl"

    def save_theirs() -> None:
        theirs.save(zipped)
        theirs.save_replay_buffer(pickled)

    def load_theirs() -> None:
        SB3SAC.load(zipped, device="cpu").load_replay_buffer(pickled)

    def save_ours() -> None:
        save_checkpoint(path, Checkpoint(1, ours.state_dict()))

    def load_ours() -> None:
        ours.load_state_dict(load_checkpoint(path).parts)

    save_ours()
    save_theirs()
    if verb == "save":
        return {"ours": _seconds(save_ours), "sb3": _seconds(save_theirs)}
    return {"ours": _seconds(load_ours), "sb3": _seconds(load_theirs)}


def _our_training() -> OnlineTraining[StepSource[Any]]:
    """Return a training in its first episode with a filled replay memory."""
    environment = make_environment(f"gymnasium/{TASK}")
    spec: EnvironmentSpec = environment.get_wrapper_attr("environment_spec")
    config = SACConfig()
    training = online_training(environment, config.build(spec, 0), config.sampling, steps=1, seed=0)
    observation, _ = environment.reset(seed=0)
    action = np.zeros(spec.action.shape, np.float32)
    for step in range(ROWS):
        if step % 1000 == 0:
            training.step_learner.replay.begin(observation)
        training.step_learner.replay.add(Transition(observation, action, 0.0, observation, False, step % 1000 == 999, action))
    return training


def _stable_baselines3() -> SB3SAC:
    model = SB3SAC("MlpPolicy", TASK, buffer_size=ROWS, device="cpu")
    shape, size = model.observation_space.shape or (), model.action_space.shape or ()
    assert model.replay_buffer is not None
    for _ in range(ROWS):
        model.replay_buffer.add(np.zeros((1, *shape)), np.zeros((1, *shape)), np.zeros((1, *size)), _ZERO, _ZERO, [{}])
    return model


_ZERO = np.zeros(1)


def _seconds(action: Callable[[], Any]) -> Trial:
    """Return a trial that takes the action once, whatever time it is given."""
    return lambda _: timed(each(action), 0.0).wall
