"""Shadow runs: the guard judges the actions of a policy without sending them, while another source commands the robot.

`RobotEnv.commands` is that source. The actions that are given to the environment's `step` are then judged and never sent.
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
"""Key of an episode's metadata; the value is the name of the source of commands of a shadow run"""
VERDICT = "shadow_guard"
"""Key of a step's info and of an episode's metadata; the value holds the guard's reasons to change or refuse an action that was
judged and not sent"""


class Commands(Protocol):
    """Source of the commands that move the robot in a shadow run."""

    name: Source

    def reset(self, seed: int, observation: Observation) -> None:
        """Start an episode, with its seed and first observation."""

    def command(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the action (A,) in [-1, 1] to send, and who it is from.

        Args:
            observation: The newest observation.
            proposed: (A,) Action of the policy, which is judged and not sent.
        """


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
    """Commands of the scripted expert of the task."""

    name: Source = "scripted"

    def __init__(self, expert_for: Callable[[int], Policy]) -> None:
        """Create the source. expert_for: returns the expert for the seed of an episode, such as RobotEnv.scripted_policy."""
        self._expert_for = expert_for

    @override
    def reset(self, seed: int, observation: Observation) -> None:
        self._expert = self._expert_for(seed)
        self._expert.reset()

    @override
    def command(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        return self._expert.act(observation, deterministic=True), ActionSource.SCRIPT
