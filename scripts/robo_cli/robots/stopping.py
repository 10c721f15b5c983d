"""robo-rl robot stop and rearm: stop a served robot, and clear its stop after a look at it."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from robo_real.http_client import RobotClient
from robo_real.remote_robot import TIMEOUT

URL = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]


@dataclass(frozen=True)
class Stop:
    """Stop a robot until a person re-arms it; needs no lease."""

    url: URL
    """Such as http://127.0.0.1:5000."""
    why: str = ""
    """Reason, shown by the stopped robot and written to the audit log."""


@dataclass(frozen=True)
class Rearm:
    """Say that you have looked at a stopped robot: clear its error, so that the next program may arm it."""

    url: URL
    """Such as http://127.0.0.1:5000."""
    by: str = "operator"
    """Your name, for the audit log."""


def stop(arguments: Stop) -> int:
    """Stop the robot."""
    link = RobotClient(arguments.url)
    by = f"robo-rl robot stop{_by_user()}{f': {arguments.why}' if arguments.why else ''}"
    return _mode_of(link, link.json("/robo/stop", {"by": by}, timeout=TIMEOUT))


def rearm(arguments: Rearm) -> int:
    """Re-arm the robot; a stop that comes meanwhile stays."""
    link = RobotClient(arguments.url)
    stops = link.json("/robo/health", method="GET").get("stops")
    return _mode_of(link, link.json("/robo/rearm", {"by": arguments.by, "stops": stops}))


def _by_user() -> str:
    try:
        return f" by {getpass.getuser()}"
    except (OSError, KeyError):  # a container may know no name
        return ""


def _mode_of(link: RobotClient, health: dict[str, Any]) -> int:
    link.close()
    print(f"mode {health['mode']}{': ' + health['reason'] if health['reason'] else ''}")
    return 0
