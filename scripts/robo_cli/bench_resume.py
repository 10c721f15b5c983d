"""How long a checkpoint with its replay memory takes to save and to restore, beside Stable-Baselines3's.

Ours is complete (networks, optimisers, generators, replay, the running episode), hashed, flushed to the disk and renamed
into place; Stable-Baselines3's is a zip and a pickle, neither flushed nor checked, and the running episode is lost.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC as SB3SAC

from robo_policies.sac import SACConfig
from robo_rl.benchmark import Effort, Measurement, Trial, measurement
from robo_rl.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.discovery import make_environment
from robo_rl.spec import EnvironmentSpec
from robo_rl.training import OnlineTraining
from robo_rl.types import Transition

ENVIRONMENT = "HalfCheetah-v5"
ROWS = 20_000
"""Transitions in the replay memory."""


def measure(effort: Effort) -> Iterator[Measurement]:
    """Yields seconds to save and to restore."""
    torch.set_num_threads(effort.threads)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = _our_training(), _stable_baselines3()
        path, zipped, pickled = Path(folder) / "ours", Path(folder) / "sb3.zip", Path(folder) / "sb3.pkl"

        def save_theirs() -> None:
            theirs.save(zipped)
            theirs.save_replay_buffer(pickled)

        def load_theirs() -> None:
            SB3SAC.load(zipped, device="cpu").load_replay_buffer(pickled)

        saving = {"ours": lambda: save_checkpoint(path, Checkpoint(1, ours.state_dict())), "sb3": save_theirs}
        loading = {"ours": lambda: ours.load_state_dict(load_checkpoint(path).parts), "sb3": load_theirs}
        for verb, actions in (("save", saving), ("resume", loading)):
            case = f"{verb} SAC on {ENVIRONMENT} with {ROWS} transitions"
            yield measurement("resume", case, "s", {name: _timed(action) for name, action in actions.items()}, effort)


def _our_training() -> OnlineTraining:
    """Returns a training in its first episode with a filled replay memory."""
    environment = make_environment(f"gymnasium/{ENVIRONMENT}")
    spec: EnvironmentSpec = environment.get_wrapper_attr("environment_spec")
    config = SACConfig()
    training = OnlineTraining(environment, config.build(spec, 0), config.sampling, steps=1, seed=0)
    observation, _ = environment.reset(seed=0)
    action = np.zeros(spec.action.shape, np.float32)
    for step in range(ROWS):
        training.replay.add(Transition(observation, action, 0.0, observation, False, step % 1000 == 999, action))
    return training


def _stable_baselines3() -> SB3SAC:
    model = SB3SAC("MlpPolicy", f"{ENVIRONMENT}", buffer_size=ROWS, device="cpu")
    shape, size = model.observation_space.shape or (), model.action_space.shape or ()
    assert model.replay_buffer is not None
    for _ in range(ROWS):
        model.replay_buffer.add(np.zeros((1, *shape)), np.zeros((1, *shape)), np.zeros((1, *size)), _ZERO, _ZERO, [{}])
    return model


_ZERO = np.zeros(1)


def _timed(action: Callable[[], Any]) -> Trial:
    """Returns a trial that takes the action once, whatever time it is given."""

    def trial(_: float) -> float:
        started = time.perf_counter()
        action()
        return time.perf_counter() - started

    return trial
