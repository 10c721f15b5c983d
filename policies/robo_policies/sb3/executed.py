"""Store executed actions in the replay of an SB3 model; SB3 itself stores the actions that its policy proposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from robo_rl.types import DIVERGED, Array

EXECUTED, REASON = READ = ("executed_action", "stop_reason")
"""Keys of `info` that decide what is stored: the executed action, and the reason of the end."""


def learn_from_executed_steps(model: OffPolicyAlgorithm) -> None:
    """Make an SB3 model store executed actions instead of proposed ones, and leave out steps of a diverged simulation.

    It replaces the method `add` of the replay memory: call it before anything else that replaces `add`.
    """
    assert model.replay_buffer is not None
    model.replay_buffer.add = ExecutedRows(model.replay_buffer).add  # type: ignore[method-assign]  # SB3 has no hook


class ExecutedRows:
    """Stands before the replay memory of an SB3 model: replaces proposed actions by executed ones in each row.

    A row is one step of each environment.
    """

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay, self._store = replay, replay.add

    def add(self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: list[dict[str, Any]]) -> None:
        """Store a row, one step of each environment, with executed actions.

        The row is left out if the simulation of any environment diverged.
        """
        if any(info.get(REASON) == DIVERGED for info in infos):
            cut_newest(self._replay)
            return
        executed = [info.get(EXECUTED, proposed) for info, proposed in zip(infos, action, strict=True)]
        self._store(obs, next_obs, np.asarray(executed, action.dtype).reshape(action.shape), reward, done, infos)


def cut_newest(replay: ReplayBuffer) -> None:
    """Mark the newest row of a replay memory as ended by a time limit.

    SB3 sums rewards over successive rows if n_steps is above 1, and must not cross a gap.
    """
    if replay.size():
        newest = replay.pos - 1
        replay.timeouts[newest] = np.maximum(replay.timeouts[newest], 1 - replay.dones[newest])
