"""Store executed actions in the replay of an SB3 model; SB3 itself stores the actions that its policy proposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from robo_rl.types import DIVERGED, Array

EXECUTED, REASON = READ = ("executed_action", "stop_reason")
"""Keys of `info` that change what is stored."""


def learn_from_executed_steps(model: OffPolicyAlgorithm) -> None:
    """Make a model store executed actions, and leave out rows with a diverged simulation.

    It replaces the method `add` of the replay: call it before anything else that replaces `add`.
    """
    assert model.replay_buffer is not None
    model.replay_buffer.add = ExecutedRows(model.replay_buffer).add  # type: ignore[method-assign]  # SB3 has no hook


class ExecutedRows:
    """Replaces proposed actions by executed ones before a row enters a replay."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay, self._store = replay, replay.add

    def add(self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: list[dict[str, Any]]) -> None:
        """Store a row, one step of each environment; the row is left out if the simulation of any of them diverged."""
        if any(info.get(REASON) == DIVERGED for info in infos):
            cut_newest(self._replay)
            return
        executed = [info.get(EXECUTED, proposed) for info, proposed in zip(infos, action, strict=True)]
        self._store(obs, next_obs, np.asarray(executed, action.dtype).reshape(action.shape), reward, done, infos)


def cut_newest(replay: ReplayBuffer) -> None:
    """Mark the newest row as ended by a time limit, because SB3 sums rewards over successive rows if n_steps is above 1."""
    if replay.size():
        newest = replay.pos - 1
        replay.timeouts[newest] = np.maximum(replay.timeouts[newest], 1 - replay.dones[newest])
