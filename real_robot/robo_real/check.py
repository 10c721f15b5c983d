"""Looks at a robot that is served, without moving it: what it is, how fast it answers, whether its cameras are alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.remote import TIMEOUT, RemoteRobot
from robo_rl.errors import RoboRLError, RobotError

ASKED = 100
"""times that the state is asked for"""
WATCHED = 1.5
"""[s] for which each camera is watched"""
SHARE = 0.5
"""of a control period that an answer may take in 99 of 100 cases"""


class Seen(NamedTuple):
    """One line of the report."""

    is_fine: bool
    text: str


def check(url: str, *, asked: int = ASKED, watched: float = WATCHED) -> Iterator[Seen]:
    """Yields what is seen of a robot; one that knows only the contract of HIL-SERL's server is asked for its state."""
    try:
        robot = RemoteRobot(url)
    except RobotError as error:
        if "status 404" not in str(error):
            yield Seen(False, str(error))
            return
        yield Seen(True, "no functions under /robo/: a server of the plain contract, without lease, guard and watchdog")
        yield from _plain(url, asked)
        return
    try:
        yield from _identity(robot)
        yield from _answers(robot, asked)
        for name in robot.cameras:
            yield _camera(robot, name, watched)
    finally:
        robot.close()


def _identity(robot: RemoteRobot) -> Iterator[Seen]:
    spec, health = robot.spec, robot.link.json("/robo/health", method="GET")
    period = spec.action.control_period or float("nan")
    yield Seen(True, f"{spec.name}, spec {spec.fingerprint}, {1 / period:.3g} actions/s, {robot.clock.speed:g} times real time")
    limits = robot.link.json("/robo/limits", method="GET")
    told = ", ".join(f"{name} {limits[name]}" for name in ("box_low", "box_high", "speed", "reach", "soft_force", "hard_force"))
    yield Seen(True, f"limits: {told}")
    bound = limits["reach"] * limits["stiffness"]
    yield Seen(True, f"an impedance controller presses with at most reach x stiffness = {bound:.3g} N")
    if not np.any(robot.link.json("/getjacobian")["jacobian"]):
        yield Seen(True, "it tells no Jacobian: no command is shortened for joint limits, only measured joints slow it")
    held = f"held by {health['owner']}" if health["owner"] else "held by nobody"
    is_latched = health["mode"] in ("stopped", "fault")
    yield Seen(not is_latched, f"mode {health['mode']}{': ' + health['reason'] if health['reason'] else ''}, {held}")
    watch = "no dead-man switch" if limits["dead_man"] is None else f"dead-man switch {limits['dead_man']} s"
    yield Seen(True, f"holds after {limits['hold_after']} s without a command, stops after {limits['stop_after']} s, {watch}")


def _answers(robot: RemoteRobot, asked: int) -> Iterator[Seen]:
    stamps: list[float] = []

    def ask() -> None:
        stamps.append(float(robot.link.json("/robo/observe", {}, timeout=TIMEOUT)["stamp"]))

    yield _timed("state", ask, asked, (robot.spec.action.control_period or 1.0) / robot.clock.speed)
    steps = np.diff(stamps)
    yield Seen(bool((steps >= 0).all()), f"measurements: {len(set(stamps))} of {asked} are new, none from the past")


def _plain(url: str, asked: int) -> Iterator[Seen]:
    driver = FrankaHttp(FrankaHttpOptions(url=url))
    try:
        driver.connect()
        yield _timed("/getstate", driver.read, asked, 0.1)
    except RoboRLError as error:
        yield Seen(False, str(error))
    finally:
        driver.close()


def _timed(what: str, ask: Callable[[], Any], asked: int, period: float) -> Seen:
    took = []
    for _ in range(asked):
        start = time.perf_counter()
        ask()
        took.append(time.perf_counter() - start)
    median, late = np.percentile(took, [50, 99])
    text = (
        f"{what}: median {1000 * median:.2f} ms, 99 % within {1000 * late:.2f} ms of a control period of {1000 * period:.0f} ms"
    )
    return Seen(bool(late <= SHARE * period), text)


def _camera(robot: RemoteRobot, name: str, watched: float) -> Seen:
    numbers: set[int] = set()
    shape: tuple[int, ...] = ()
    blank, age = True, 0.0
    end = time.monotonic() + watched
    try:
        while time.monotonic() < end:
            frame = robot.frame(name)
            numbers.add(frame.number)
            shape, blank = frame.picture.shape, blank and bool((frame.picture == frame.picture.flat[0]).all())
            age = float(robot.link.json("/robo/health", method="GET")["now"]) - frame.stamp
            time.sleep(0.01)
    except RobotError as error:
        return Seen(False, f"camera {name}: {error}")
    rate = len(numbers) / watched
    problems = (["it delivers no new picture"] if len(numbers) < 2 else []) + (
        ["its pictures are of one colour"] if blank else []
    )
    text = f"camera {name}: {rate:.1f} pictures/s, {shape}, newest {1000 * age:.0f} ms old"
    return Seen(not problems, "; ".join([text, *problems]))
