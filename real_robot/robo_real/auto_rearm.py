"""Automatic re-arming of a simulated robot before an episode, after the guard has stopped it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from robo_real.environment import RobotEnv
from robo_real.remote_robot import RemoteRobot
from robo_rl.errors import RobotStopped

WHO = "the simulated person"


def with_auto_rearm(environment: gymnasium.Env[Any, Any], tell: Callable[[str], None]) -> gymnasium.Env[Any, Any]:
    """Return the environment with automatic re-arming if its robot is simulated; a real one is left to people.

    tell: called with a message at each stop.
    """
    bare = environment.unwrapped
    if isinstance(bare, RobotEnv) and isinstance(bare.robot, RemoteRobot) and bare.robot.is_simulated:
        return AutoRearm(environment, bare.robot, tell)
    return environment


class AutoRearm(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment that re-arms a stopped robot at a reset."""

    def __init__(self, environment: gymnasium.Env[Any, Any], robot: RemoteRobot, tell: Callable[[str], None]) -> None:
        super().__init__(environment)
        self._robot, self._tell = robot, tell

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; raises RobotStopped if re-arming fails."""
        try:
            return super().reset(**arguments)
        except RobotStopped as error:
            self._tell(f"the guard stopped the arm ({error.reason}): {WHO} re-arms it")
            self._robot.rearm(WHO)
            return super().reset(**arguments)
