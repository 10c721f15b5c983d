"""Shadow runs: a policy is asked and judged by the guard in every control period, and another source commands the robot.

`RobotEnv.commands` names the source; the environment then sends nothing of the actions that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
from typing_extensions import override

from robo_real.arm_spec import GRIP, hold_action
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import ActionSpec, Observation
from robo_rl.types import ActionSource, Array

Source = Literal["zero", "scripted", "person"]
"""Name of a source of commands"""
SHADOW = "shadow"
"""Key of an episode's metadata: name of the source of commands of a shadow run"""
VERDICT = "shadow_guard"
"""Key of a step's info and of an episode's metadata: the guard's reasons to change or refuse an action that was not sent"""


class Commands(Protocol):
    """Source of the commands of a shadow run."""

    name: Source

    def reset(self, seed: int, observation: Observation) -> None:
        """Start an episode."""

    def command(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the action (A,) to send, and its source; proposed: (A,) action that is judged and not sent."""


class ZeroCommands(Commands):
    """Commands that move nothing; the gripper keeps the opening that it has at the reset."""

    name: Source = "zero"

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._action: Array = np.zeros(spec.size, np.float32)

    @override
    def reset(self, seed: int, observation: Observation) -> None:
        self._action = hold_action(self._spec, observation)

    @override
    def command(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        action = hold_action(self._spec, observation)
        if GRIP in self._spec.names:
            action[self._spec.names.index(GRIP)] = self._action[self._spec.names.index(GRIP)]
        return action, ActionSource.SCRIPT


class ScriptedCommands(Commands):
    """Commands of the task's scripted expert."""

    name: Source = "scripted"

    def __init__(self, expert_for: Callable[[int], Policy]) -> None:
        """expert_for: from the seed of an episode to its expert, as RobotEnv.scripted_policy."""
        self._expert_for = expert_for

    @override
    def reset(self, seed: int, observation: Observation) -> None:
        self._expert = self._expert_for(seed)
        self._expert.reset()

    @override
    def command(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        return self._expert.act(observation, deterministic=True), ActionSource.SCRIPT
