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
    """Wrap an environment so that a reset re-arms its robot, if that robot is simulated.

    Args:
        environment: Environment of a robot, or any other.
        tell: Called with a message at each automatic re-arming.

    Returns:
        The wrapped environment. The same environment if its robot is real, since only a person may re-arm a real robot.
    """
    bare = environment.unwrapped
    if isinstance(bare, RobotEnv) and isinstance(bare.robot, RemoteRobot) and bare.robot.is_simulated:
        return AutoRearm(environment, bare.robot, tell)
    return environment


class AutoRearm(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment that re-arms its simulated robot at a reset, if the guard has stopped it."""

    def __init__(self, environment: gymnasium.Env[Any, Any], robot: RemoteRobot, tell: Callable[[str], None]) -> None:
        super().__init__(environment)
        self._robot, self._tell = robot, tell

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode, after a re-arming if necessary; raises RobotStopped if the robot stops again."""
        try:
            return super().reset(**arguments)
        except RobotStopped as error:
            self._tell(f"the guard stopped the arm ({error.reason}): {WHO} re-arms it")
            self._robot.rearm(WHO)
            return super().reset(**arguments)
