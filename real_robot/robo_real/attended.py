"""A twin with a simulated person beside it, who re-arms what the guard stopped before the next episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from robo_real.environment import RobotEnv
from robo_real.remote import RemoteRobot
from robo_rl.errors import RobotStopped

WHO = "the simulated person"


def attended(environment: gymnasium.Env[Any, Any], tell: Callable[[str], None]) -> gymnasium.Env[Any, Any]:
    """Returns the environment with somebody beside its robot where that is simulated, too; nobody re-arms a real one unseen.

    tell: is told of each stop.
    """
    bare = environment.unwrapped
    if isinstance(bare, RobotEnv) and isinstance(bare.robot, RemoteRobot) and bare.robot.is_simulated:
        return Attended(environment, bare.robot, tell)
    return environment


class Attended(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Episodes begin on a robot that was stopped, too."""

    def __init__(self, environment: gymnasium.Env[Any, Any], robot: RemoteRobot, tell: Callable[[str], None]) -> None:
        super().__init__(environment)
        self._robot, self._tell = robot, tell

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; raises RobotStopped if the robot cannot be re-armed, either."""
        try:
            return super().reset(**arguments)
        except RobotStopped as error:
            self._tell(f"the guard stopped the arm ({error.reason}): {WHO} re-arms it")
            self._robot.rearm(WHO)
            return super().reset(**arguments)
