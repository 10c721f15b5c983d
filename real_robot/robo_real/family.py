"""Robots as environments: `robot:http://HOST:PORT` for a served one, `robot/Fake-v0` for the fake arm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import gymnasium
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.components import EnvironmentFamily
from robo_rl.system.plain_files import parse_yaml

if TYPE_CHECKING:
    from robo_real.environment import RobotEnv

FAKE = "Fake-v0"
SETTINGS = ("control", "action_repeat", "max_steps", "relative_frame", "reset_time")


class RobotFamily(EnvironmentFamily):
    """Environment family of robots: makes `robot/Fake-v0`, and the environment of a served robot."""

    @override
    def names(self) -> Iterable[str]:
        """Return the names of the robots that need no address."""
        return (FAKE,)

    @override
    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        if name != FAKE:
            raise UnknownName(
                "task of family 'robot'", name, self.names(), fix="a robot that is served is robot:http://HOST:PORT"
            )
        from robo_real.fake_reach import fake_reach

        _refuse_unknown(arguments)
        is_relative = arguments.pop("relative_frame", False)
        return _in_frame(fake_reach(**arguments), is_relative)

    def at(self, address: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Connect to a served robot, and return its environment.

        Args:
            address: Such as http://127.0.0.1:5000; it may end with settings, such as `?action_repeat=3`.
            **arguments: Further settings, one of SETTINGS each; they override those of the address.

        Raises:
            UnknownName: There is no such setting.
            InvalidSetting: This is no address of a robot, or a setting is impossible.
            RobotUnavailable: No robot's server answers there.
        """
        from robo_real.environment import RobotEnv
        from robo_real.remote_robot import RemoteRobot

        parts = urlsplit(address)
        settings = {name: parse_yaml(value, f"The setting {name!r}") for name, value in parse_qsl(parts.query)} | arguments
        _refuse_unknown(settings)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidSetting("This is no address of a robot.", got=address, allowed="robot:http://HOST:PORT")
        robot = RemoteRobot(f"{parts.scheme}://{parts.netloc}")
        is_relative = settings.pop("relative_frame", False)
        return _in_frame(RobotEnv(robot, robot, **settings), is_relative)


def _in_frame(environment: RobotEnv, is_relative: bool) -> gymnasium.Env[Any, Any]:
    if not is_relative:
        return environment
    from robo_rl.environments.relative_frame import RelativeFrame

    return RelativeFrame(environment)


def _refuse_unknown(arguments: dict[str, Any]) -> None:
    for name in arguments:
        if name not in SETTINGS:
            raise UnknownName("setting of a robot's environment", name, SETTINGS)


FAMILY = RobotFamily()
"""An arm that `robo-rl robot serve` serves, at robot:URL."""
