"""robo-rl robot: serve a robot, simulated or real, and set it up, check, stop or re-arm it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_cli.actions import Actions, Later, run_action
from robo_cli.robots.serve import Serve, serve
from robo_cli.robots.stopping import Rearm, Stop, rearm, stop
from robo_real.check import check

URL = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
EXAMPLES = """robo-rl robot serve --driver twin --port 5000
robo-rl robot serve --driver twin --driver.settings.task robo/ArmPick-v0 --driver.settings.speed 2
robo-rl robot serve --driver franka-http --driver.settings.url http://192.168.1.7:5000 --limits lab.yaml --cameras.wrist 0
robo-rl robot drive http://127.0.0.1:5000 --teleoperator spacemouse --out data/driven
robo-rl robot check http://127.0.0.1:5000
robo-rl robot stop http://127.0.0.1:5000
robo-rl robot rearm http://127.0.0.1:5000
robo-rl robot setup --driver ur --driver.settings.address 192.168.1.10 --freedrive --out lab.yaml
robo-rl robot board board.pdf
robo-rl robot calibrate views/wrist --robot http://127.0.0.1:5000 --camera camera_wrist --out wrist.yaml
robo-rl robot tare http://127.0.0.1:5000
robo-rl record robot:http://127.0.0.1:5000 --out data/twin     (its expert acts on the twin)"""


@dataclass(frozen=True)
class Check:
    """Check a robot without moving it: limits, rate, latency, cameras; exit status 1 if a check fails."""

    url: URL
    """Such as http://127.0.0.1:5000."""
    pictures: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Folder to write a PNG of each camera to, the reference that a later picture is compared with."""


def main(arguments: list[str]) -> int:
    """Run an action."""
    actions: Actions = {
        "serve": (Serve, serve),
        "drive": Later("robo_app.robots.drive", "Drive", "drive"),
        "check": (Check, look),
        "stop": (Stop, stop),
        "rearm": (Rearm, rearm),
        "setup": Later("robo_cli.robots.setup", "Setup", "setup"),
        "board": Later("robo_cli.robots.calibrate", "Board", "draw_board"),
        "calibrate": Later("robo_cli.robots.calibrate", "Calibrate", "calibrate_camera"),
        "tare": Later("robo_cli.robots.tare", "TareForce", "tare"),
    }
    return run_action("robot", actions, EXAMPLES, arguments)


def look(arguments: Check) -> int:
    """Print one line per thing that was looked at."""
    all_fine = True
    for seen in check(arguments.url, pictures=arguments.pictures):
        all_fine &= seen.is_fine
        print(f"{'ok     ' if seen.is_fine else 'PROBLEM'}  {seen.text}", flush=True)
    return int(not all_fine)
