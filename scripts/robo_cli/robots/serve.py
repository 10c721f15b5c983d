"""robo-rl robot serve: serve a robot, simulated or real, behind its guard."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import Cameras, DriverSettings
from robo_real.audit_log import FILES, LARGEST
from robo_real.priority import realtime_priority
from robo_real.server.application import ADDRESS
from robo_real.server.token import VARIABLE
from robo_real.serving import ServerSettings, build_server

LOOK = 0.5
"""[s] between two looks whether the HTTP process can still be replaced"""


@dataclass(frozen=True)
class Serve:
    """Serve a robot behind its guard, with watchdog, lease and the routes of HIL-SERL's Franka server."""

    driver: str = "twin"
    """twin, fake, franka-http, ur, or one of your own (entry points robo_rl.robots)."""
    options: DriverSettings = field(default_factory=dict)
    """Setting of the driver: task, speed, cameras, sees and image_size of the twin, url of franka-http."""
    limits: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """YAML file with every limit; needed for all but simulated robots."""
    cameras: Cameras = field(default_factory=dict)
    """Camera of the name KEY: number or path of an OpenCV device, or settings such as '{kind: realsense, serial: "0123"}'."""
    image_size: int = 128
    """[pixel] Height and width of the pictures of cameras without a setting of their own."""
    address: str = ADDRESS
    """Address to listen at. Every client that reaches the port can move the robot, unless ROBO_RL_ROBOT_TOKEN holds a token."""
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


def serve(arguments: Serve) -> int:
    """Serve the robot until it is interrupted, then leave the arm still."""
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a driver that hangs as it connects, as Ctrl-C does
    with realtime_priority() as is_first:  # before any thread starts
        server = build_server(settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: done.set())
        server.notify = lambda text: print(text, file=sys.stderr, flush=True)
        server.start()
        print(f"{server.application.robot.spec.name} at {server.url}, audit log {arguments.log}", flush=True)
        if not is_first:
            print("without real-time priority (ulimit -r): on a busy machine the arm holds now and then", flush=True)
        if server.asks_token:
            print(f"clients show the token in {VARIABLE}; a stop needs none", flush=True)
        elif arguments.address != ADDRESS:
            print(f"every program that reaches this address can move the robot: there is no token ({VARIABLE})", flush=True)
        while not done.wait(LOOK) and not server.http.is_lost.is_set():
            pass
        server.close()
    print("ended; the arm holds still", flush=True)
    return int(not done.is_set())
