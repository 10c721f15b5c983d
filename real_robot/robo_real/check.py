"""Diagnosis of a served robot, without a motion: identity, limits, latency and cameras."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.remote_robot import TIMEOUT, RemoteRobot
from robo_rl.errors import RoboRLError, RobotError

REQUESTS = 100
"""number of requests with which the latency is measured"""
WATCHED = 1.5
"""Time [s] for which each camera is observed."""
SHARE = 0.5
"""largest 99th percentile of the latency that is fine, as a share of the control period"""


class Finding(NamedTuple):
    """Result of one check: one line of the report."""

    is_fine: bool
    """False if this line is a problem"""
    text: str


def check(url: str, *, requests: int = REQUESTS, watched: float = WATCHED, pictures: Path | None = None) -> Iterator[Finding]:
    """Yield the findings about a served robot, one by one. Of a plain HIL-SERL server only the state is read.

    Args:
        url: Address of the server.
        requests: Number of requests with which the latency is measured.
        watched: [s] Time for which each camera is observed.
        pictures: Folder to which a PNG of each camera is written, for `reference` of CameraSettings; None to write none.
    """
    try:
        robot = RemoteRobot(url)
    except RobotError as error:
        if "status 404" not in str(error):
            yield Finding(False, str(error))
            return
        yield Finding(True, "no functions under /robo/: a server of the plain contract, without lease, guard and watchdog")
        yield from _plain(url, requests)
        return
    try:
        yield from _identity(robot)
        yield from _answers(robot, requests)
        for name in robot.cameras:
            yield _camera(robot, name, watched, pictures)
    finally:
        robot.close()


def _identity(robot: RemoteRobot) -> Iterator[Finding]:
    spec, health = robot.spec, robot.client.json("/robo/health", method="GET")
    limits = robot.client.json("/robo/limits", method="GET")
    period = spec.action.control_period or float("nan")
    rate = f"{1 / period:.3g} actions/s, {robot.clock.speed:g} times real time"
    yield Finding(True, f"{spec.name}, spec {spec.fingerprint}, {rate}")
    names = ("box_low", "box_high", "speed", "reach", "soft_force", "hard_force")
    yield Finding(True, f"limits: {', '.join(f'{name} {limits[name]}' for name in names)}")
    if (stiffness := limits.get("stiffness")) is None:
        yield Finding(True, "the limits name no stiffness: clients may set none")
    else:
        bound = limits["reach"] * stiffness
        yield Finding(True, f"an impedance controller presses with at most reach x stiffness = {bound:.3g} N")
    if not np.any(robot.client.json("/getjacobian")["jacobian"]):
        yield Finding(True, "it has no Jacobian: no command is shortened for joint limits, only measured joints slow it")
    held = f"held by {health['owner']}" if health["owner"] else "lease free"
    is_latched = health["mode"] in ("stopped", "fault")
    yield Finding(not is_latched, f"mode {health['mode']}{': ' + health['reason'] if health['reason'] else ''}, {held}")
    watch = "no dead-man switch" if limits["dead_man"] is None else f"dead-man switch {limits['dead_man']} s"
    yield Finding(
        True, f"holds after {limits['hold_after']} s without a command, stops after {limits['stop_after']} s, {watch}"
    )


def _answers(robot: RemoteRobot, requests: int) -> Iterator[Finding]:
    stamps: list[float] = []

    def request() -> None:
        stamps.append(float(robot.client.json("/robo/observe", {}, timeout=TIMEOUT)["stamp"]))

    yield _timed("state", request, requests, (robot.spec.action.control_period or 1.0) / robot.clock.speed)
    steps = np.diff(stamps)
    yield Finding(bool((steps >= 0).all()), f"measurements: {len(set(stamps))} of {requests} are new, none from the past")


def _plain(url: str, requests: int) -> Iterator[Finding]:
    driver = FrankaHttp(FrankaHttpOptions(url=url))
    try:
        driver.connect()
        yield _timed("/getstate", driver.read, requests, 0.1)
    except RoboRLError as error:
        yield Finding(False, str(error))
    finally:
        driver.close()


def _timed(name: str, request: Callable[[], Any], requests: int, period: float) -> Finding:
    took = []
    for _ in range(requests):
        start = time.perf_counter()
        request()
        took.append(time.perf_counter() - start)
    median, late = np.percentile(took, [50, 99])
    text = f"{name}: median {1000 * median:.2f} ms, 99 % within {1000 * late:.2f} ms"
    return Finding(bool(late <= SHARE * period), f"{text} of a control period of {1000 * period:.0f} ms")


def _camera(robot: RemoteRobot, name: str, watched: float, pictures: Path | None) -> Finding:
    numbers: set[int] = set()
    shape: tuple[int, ...] = ()
    blank, age = True, 0.0
    end = time.monotonic() + watched
    try:
        while time.monotonic() < end:
            frame = robot.frame(name)
            numbers.add(frame.number)
            shape, blank = frame.picture.shape, blank and bool((frame.picture == frame.picture.flat[0]).all())
            age = float(robot.client.json("/robo/health", method="GET")["now"]) - frame.stamp
            time.sleep(0.01)
        if pictures is not None:
            import cv2

            pictures.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(pictures / f"{name}.png"), frame.picture[..., ::-1])
    except RobotError as error:
        return Finding(False, f"camera {name}: {error}")
    rate = len(numbers) / watched
    problems = (["it delivers no new picture"] if len(numbers) < 2 else []) + (
        ["its pictures are of one colour"] if blank else []
    )
    device = f" of {frame.identity}" if frame.identity else ""
    text = f"camera {name}: {rate:.1f} pictures/s{device}, {shape}, newest {1000 * age:.0f} ms old"
    return Finding(not problems, "; ".join([text, *problems]))
