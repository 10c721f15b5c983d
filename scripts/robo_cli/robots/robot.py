"""robo-rl robot: serve a robot, simulated or real, and check, stop or re-arm a served one."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_cli.actions import Actions, Later, run_action
from robo_cli.robots.serve import Serve, serve
from robo_real.check import check
from robo_real.http_client import RobotClient
from robo_real.remote_robot import TIMEOUT

URL = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
EXAMPLES = """robo-rl robot serve --driver twin --port 5000
robo-rl robot serve --driver twin --driver.settings.task robo/ArmPick-v0 --driver.settings.speed 2
robo-rl robot serve --driver franka-http --driver.settings.url http://192.168.1.7:5000 --limits lab.yaml --cameras.wrist 0
robo-rl robot drive http://127.0.0.1:5000 --teleoperator spacemouse --out data/driven
robo-rl robot check http://127.0.0.1:5000
robo-rl robot stop http://127.0.0.1:5000
robo-rl robot rearm http://127.0.0.1:5000
robo-rl record robot:http://127.0.0.1:5000 --out data/twin     (its expert acts on the twin)"""


@dataclass(frozen=True)
class Check:
    """Check a robot without moving it: limits, rate, latency, cameras; exit status 1 if a check fails."""

    url: URL
    """Such as http://127.0.0.1:5000."""
    pictures: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Folder to write a PNG of each camera to, the reference that a later picture is compared with."""


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


def main(arguments: list[str]) -> int:
    """Runs an action."""
    actions: Actions = {
        "serve": (Serve, serve),
        "drive": Later("robo_app.robots.drive", "Drive", "drive"),
        **{"check": (Check, look), "stop": (Stop, stop), "rearm": (Rearm, rearm)},
    }
    return run_action("robot", actions, EXAMPLES, arguments)


def look(arguments: Check) -> int:
    """Prints one line per thing that was looked at."""
    all_fine = True
    for seen in check(arguments.url, pictures=arguments.pictures):
        all_fine &= seen.is_fine
        print(f"{'ok     ' if seen.is_fine else 'PROBLEM'}  {seen.text}", flush=True)
    return int(not all_fine)


def stop(arguments: Stop) -> int:
    """Stops the robot."""
    link = RobotClient(arguments.url)
    by = f"robo-rl robot stop{_by_user()}{f': {arguments.why}' if arguments.why else ''}"
    return _mode_of(link, link.json("/robo/stop", {"by": by}, timeout=TIMEOUT))


def rearm(arguments: Rearm) -> int:
    """Re-arms the robot; a stop that comes meanwhile stays."""
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
