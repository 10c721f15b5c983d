"""robo-rl robot: serve a robot, simulated or real, and check, stop or re-arm a served one."""

from __future__ import annotations

import getpass
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_cli.actions import Actions, run_action
from robo_cli.typed_settings import Cameras, DriverSettings
from robo_real.audit_log import FILES, LARGEST
from robo_real.check import check
from robo_real.client import RobotClient
from robo_real.priority import realtime_priority
from robo_real.remote import TIMEOUT
from robo_real.server.application import ADDRESS
from robo_real.serving import ServerSettings, build_server

LOOK = 0.5
"""[s] between two looks whether the HTTP process can still be replaced"""
URL = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
EXAMPLES = """robo-rl robot serve --driver twin --port 5000
robo-rl robot serve --driver twin --driver.settings.task robo/ArmPick-v0 --driver.settings.speed 2
robo-rl robot serve --driver franka-http --driver.settings.url http://192.168.1.7:5000 --limits lab.yaml --cameras.wrist 0
robo-rl robot check http://127.0.0.1:5000
robo-rl robot stop http://127.0.0.1:5000
robo-rl robot rearm http://127.0.0.1:5000
robo-rl record robot:http://127.0.0.1:5000 --out data/twin     (its expert acts on the twin)"""


@dataclass(frozen=True)
class Serve:
    """Serve a robot behind its guard, with watchdog, lease and the routes of HIL-SERL's Franka server."""

    driver: str = "twin"
    """twin, fake, franka-http, ur, or one of your own (entry points robo_rl.robots)."""
    options: DriverSettings = field(default_factory=dict)
    """Setting of the driver: task, speed, cameras and image_size of the twin, url of franka-http."""
    limits: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """YAML file with every limit; needed for all but simulated robots."""
    cameras: Cameras = field(default_factory=dict)
    """OpenCV camera of the name KEY: its device, a number or a path."""
    image_size: int = 128
    """[pixel] Height and width of their pictures."""
    address: str = ADDRESS
    """Address to listen at. Every client that reaches the port can move the robot."""
    port: int = 5000
    """0 takes a free one."""
    log: Path = Path("robot-audit.jsonl")
    """Audit log, append-only: modes, commands, refusals, stops and re-armings with their origin."""
    log_mib: int = LARGEST >> 20
    """[MiB] Size of one file of the audit log; the older ones are LOG.1, LOG.2, ..."""
    log_files: int = FILES
    """Files of the audit log that are kept, the newest."""
    plain_clients: bool | None = None
    """Let clients move it that know no lease, such as HIL-SERL's; None allows it to simulated robots only."""
    auto_clear: bool = False
    """Let /clearerr end a stop that came from the robot's own error, as HIL-SERL's client expects."""
    allow_joint_reset: bool = False
    """Forward /jointreset to a robot whose own server moves the joints: without limits, and no stop ends it."""


@dataclass(frozen=True)
class Check:
    """Check a robot without moving it: limits, rate, latency, cameras; exit status 1 if a check fails."""

    url: URL
    """Such as http://127.0.0.1:5000."""


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
    actions: Actions = {"serve": (Serve, serve), "check": (Check, look), "stop": (Stop, stop), "rearm": (Rearm, rearm)}
    return run_action("robot", actions, EXAMPLES, arguments)


def serve(arguments: Serve) -> int:
    """Serves until it is interrupted, then leaves the arm still."""
    settings = ServerSettings(
        driver=arguments.driver,
        options=arguments.options,
        limits=arguments.limits,
        cameras=arguments.cameras,
        image_size=arguments.image_size,
        address=arguments.address,
        port=arguments.port,
        log=arguments.log,
        log_bytes=arguments.log_mib << 20,
        log_files=arguments.log_files,
        plain_clients=arguments.plain_clients,
        auto_clear=arguments.auto_clear,
        allow_joint_reset=arguments.allow_joint_reset,
    )
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    with realtime_priority() as is_first:  # before any thread starts
        server = build_server(settings)
        server.notify = lambda text: print(text, file=sys.stderr, flush=True)
        server.start()
        print(f"{server.application.robot.spec.name} at {server.url}, audit log {arguments.log}", flush=True)
        if not is_first:
            print("without real-time priority (ulimit -r): on a busy machine the arm holds now and then", flush=True)
        if arguments.address != ADDRESS:
            print("whoever reaches this address can move the robot: there is no password", flush=True)
        while not done.wait(LOOK) and not server.http.is_lost.is_set():
            pass
        server.close()
    print("ended; the arm holds still", flush=True)
    return int(not done.is_set())


def look(arguments: Check) -> int:
    """Prints one line per thing that was looked at."""
    all_fine = True
    for seen in check(arguments.url):
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
