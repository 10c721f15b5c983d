"""Drive a robot from a terminal, without a browser (`robo-rl robot drive`)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robo_app.arguments.free_settings import EnvironmentArguments, TeleoperatorSettings
from robo_app.robots.console import Console, serve_console
from robo_real.arm_spec import CONTROL_PERIOD, GRIP, arm_spec
from robo_real.teleoperation.motion import MotionCommand
from robo_real.teleoperation.teleoperator import Teleoperator, make_teleoperator

if TYPE_CHECKING:
    from robo_real.console.robot_console import RobotConsole

KEYBOARD = "keyboard"
POLL = 0.1
"""Time between two looks at the state of the episode [s]."""


@dataclass(frozen=True)
class Drive:
    """Drive a robot by keyboard, gamepad or SpaceMouse from this terminal; start, label and record episodes."""

    url: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")] = ""
    """Such as http://127.0.0.1:5000; without one the device's commands are shown, and nothing moves."""
    teleoperator: str = KEYBOARD
    """Device: keyboard, gamepad, spacemouse, or one of your own (entry points robo_rl.teleoperators). In a
    terminal the keys start, label and stop beside it."""
    teleoperator_settings: TeleoperatorSettings = field(default_factory=dict)
    """Setting of the device: axes, linear_speed, angular_speed, dead_band, release."""
    policy: str = ""
    """Policy that acts while you do not: "scripted", RUN or RUN@STEP; by default none."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Dataset that the episodes are added to; it is made if there is none."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment, such as --environment.arguments.action_repeat 3"""
    seed: int = 0
    """Reset seed of the first episode; the others follow."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def drive(arguments: Drive) -> int:
    """Drive until Ctrl-C; the arm then holds still. Returns exit status 0."""
    device = make_teleoperator(arguments.teleoperator, arguments.teleoperator_settings)
    if not arguments.url:
        return _try_out(device)
    if arguments.teleoperator == KEYBOARD or not sys.stdin.isatty():
        devices = [device]
    else:
        devices = [make_teleoperator(KEYBOARD, {"axes": {}, "release": 0.1}), device]  # the keys that drive are off
    console = Console(
        robot=arguments.url,
        policy=arguments.policy,
        out=arguments.out,
        arguments=arguments.arguments,
        seed=arguments.seed,
        port=0,
        browser=False,
        runs=arguments.runs,
    )
    return serve_console(console, lambda opened: _operator_in_terminal(opened, devices))


def _try_out(device: Teleoperator) -> int:
    """Print the commands of a device until Ctrl-C; raises TeleoperatorUnavailable if it is lost."""
    spec = arm_spec("an arm").action
    motion, shown, printed = MotionCommand(device.settings, spec), "", 0.0
    try:
        print(f"{device.connect()}: {device.keys}\nno robot is named, nothing moves   (Ctrl-C ends it)", flush=True)
        while True:
            reading = device.read()
            command = motion.of(reading, time.monotonic())
            parts = zip(spec.names, spec.to_physical(command.action) / CONTROL_PERIOD, spec.units, strict=True)
            speeds = "   ".join(f"{name} {value:+.3f} {unit}/s" for name, value, unit in parts if name != GRIP)
            text = f"{'commands' if command.held else 'at rest '}   {speeds}   {' '.join(reading.presses)}"
            if text != shown and (reading.presses or time.monotonic() - printed > POLL):
                shown, printed = text, time.monotonic()
                print(text, flush=True)
    except KeyboardInterrupt:
        return 0
    finally:
        device.close()


@contextmanager
def _operator_in_terminal(console: RobotConsole, devices: list[Teleoperator]) -> Iterator[None]:
    """Let devices drive the console inside the block; the first one also starts, stops and labels episodes."""
    for index, device in enumerate(devices):
        console.drive_with(device, is_operator=index == 0)
        print(f"  {device.keys}", flush=True)
    done = threading.Event()
    thread = threading.Thread(target=_print_episodes, args=(console, done), name="episodes in words", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _print_episodes(console: RobotConsole, done: threading.Event) -> None:
    shown = ("waiting", "")
    while not done.wait(POLL):
        tally = console.tally
        if (state := (tally.state, tally.message)) != shown:
            shown = state
            print(f"episode {tally.state}{f': {tally.message}' if tally.message else ''}", flush=True)
