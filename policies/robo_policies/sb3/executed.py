"""Steps as they were executed, for the replay of an SB3 model: SB3 itself stores what its policy proposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from robo_rl.types import DIVERGED, Array

EXECUTED, REASON = READ = ("executed_action", "stop_reason")
"""Keys of `info` that decide what is stored."""


def learn_from_executed_steps(model: OffPolicyAlgorithm) -> None:
    """Make a model store executed actions, and no row with a diverged step; whatever else replaces `add` comes after this."""
    assert model.replay_buffer is not None
    model.replay_buffer.add = ExecutedRows(model.replay_buffer).add  # type: ignore[method-assign]  # SB3 has no hook


class ExecutedRows:
    """Replaces proposed actions on their way into a replay."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay, self._store = replay, replay.add

    def add(self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: list[dict[str, Any]]) -> None:
        """Store a row, one step of each environment; one that diverged in any of them is left out."""
        if any(info.get(REASON) == DIVERGED for info in infos):
            cut_newest(self._replay)
            return
        executed = [info.get(EXECUTED, proposed) for info, proposed in zip(infos, action, strict=True)]
        self._store(obs, next_obs, np.asarray(executed, action.dtype).reshape(action.shape), reward, done, infos)


def cut_newest(replay: ReplayBuffer) -> None:
    """Count the newest row as cut: SB3 sums the rewards of successive rows if n_steps is more than 1."""
    if replay.size():
        newest = replay.pos - 1
        replay.timeouts[newest] = np.maximum(replay.timeouts[newest], 1 - replay.dones[newest])
