"""Propose limits for a robot (`robo-rl robot setup`), from poses that are recorded while a person moves the hand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from robo_real.arm import ArmDriver
from robo_real.hand_pose import HandPose, read_hand_pose
from robo_real.http_client import RobotClient
from robo_real.limits import Limits, careful_limits, limits_from
from robo_real.workspace import Margins, propose_limits, write_limits
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, RobotUnavailable
from robo_rl.runs.run import write_text
from robo_rl.settings import settings_as

PERIOD = 0.05
"""Time between two recorded poses [s]."""
SHOWN = 1.0
"""Time between two lines of progress [s]."""


@dataclass(frozen=True)
class Source:
    """Robot whose hand a person moves, and how to read its pose."""

    name: str
    read: Callable[[], HandPose]
    base: Limits
    serve: str
    """Options of `robo-rl robot serve` for this robot."""


@contextmanager
def driven_robot(url: str, driver: str, options: Mapping[str, Any], base: Path | None, freedrive: bool) -> Iterator[Source]:
    """Open a robot for reading; no command is sent except, if wanted, that for freedrive.

    Args:
        url: Address of a served robot; "" if a driver is given.
        driver: Name of a driver; "" if a URL is given.
        options: Options of the driver.
        base: File of limits that the proposal starts from; None for those of the robot.
        freedrive: True to switch the driver's freedrive on inside the block.

    Raises:
        InvalidSetting: Not exactly one of `url` and `driver` is given, or the driver has no freedrive.
    """
    if bool(url) == bool(driver):
        raise InvalidSetting("Which robot?", got=f"URL {url!r}, driver {driver!r}", allowed="URL, or --driver NAME")
    if url:
        yield _served(url, base, freedrive)
        return
    kind = load("robots", driver)
    arm: ArmDriver = kind(settings_as(kind.options, dict(options), source=f"options of {driver}"))
    frees = getattr(arm, "freedrive", None)
    if freedrive and frees is None:
        fix = "drive it with its own button or pendant, without --freedrive"
        raise InvalidSetting(f"The driver {driver} has no freedrive.", got="--freedrive", fix=fix)
    with contextlib.closing(arm):
        arm.connect()
        own = limits_from(base) if base else getattr(kind, "limits", None) or careful_limits(len(arm.read().joint_position))
        if not freedrive:
            yield Source(arm.name, lambda: _pose_of(arm), own, f"--driver {driver}")
            return
        assert frees is not None
        frees(True)
        try:
            yield Source(arm.name, lambda: _pose_of(arm), own, f"--driver {driver}")
        finally:
            frees(False)


def require_new(out: Path) -> None:
    """Raise InvalidSetting if the file exists."""
    if out.exists():
        raise InvalidSetting("There is such a file already.", got=str(out), allowed="a new file", fix="--out another.yaml")


def watch_drive(source: Source, seconds: float | None, tell: Callable[[str], object]) -> list[HandPose]:
    """Record poses of the hand until Ctrl-C, or for `seconds` if given; `tell` is called with lines of progress."""
    poses: list[HandPose] = []
    end, shown = np.inf if seconds is None else time.monotonic() + seconds, 0.0
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < end:
            pose = source.read()
            if not poses or pose.stamp > poses[-1].stamp:
                poses.append(pose)
            if time.monotonic() - shown > SHOWN:
                shown = time.monotonic()
                tell(f"{len(poses)} poses; driven so far {_extents(poses)}")
            time.sleep(PERIOD)
    return poses


def limits_file(
    source: Source, poses: list[HandPose], margins: Margins, speed: float | None, out: Path
) -> tuple[Limits, list[str]]:
    """Propose limits around recorded poses, and write them to a file.

    Args:
        source: The robot; its base limits are kept where nothing was measured.
        poses: Recorded poses.
        margins: Distances between poses and limits.
        speed: Largest speed of the hand [m/s]; None for that of the base limits.
        out: File to write.

    Returns:
        The limits, and notes that the file also has.

    Raises:
        InvalidSetting: The poses are not enough for a proposal.
    """
    limits = propose_limits(poses, source.base, margins, speed)
    notes = [
        f"Limits of {source.name}, proposed by robo-rl robot setup on {date.today()}: look at each one before you use it.",
        f"{len(poses)} poses in {poses[-1].stamp - poses[0].stamp:.0f} s, {_extents(poses)}",
        f"margins: {margins.sides} m at sides and top, {margins.floor} m below the lowest pose, {margins.angle} rad of tilt and"
        f" turn, {margins.joints} rad of joints",
        "Driven by hand: box, tilt, turn, joint_low, joint_high. All others are of the base and were not measured.",
    ]
    write_text(out, write_limits(limits, notes))
    limits_from(out)
    return limits, notes


def _served(url: str, base: Path | None, freedrive: bool) -> Source:
    if freedrive:
        fix = "stop the server and name its driver: --driver ur --freedrive"
        raise InvalidSetting("A served robot has no freedrive.", got=f"--freedrive with {url}", fix=fix)
    client = RobotClient(url)
    name = str(client.json("/robo/version", method="GET")["robot"])
    served = settings_as(Limits, client.json("/robo/limits", method="GET"), source=f"limits of {url}")

    return Source(name, lambda: read_hand_pose(client), limits_from(base) if base else served, "--driver ...")


def _pose_of(arm: ArmDriver) -> HandPose:
    state = arm.read()
    if state.fault is not None:
        raise RobotUnavailable("The robot reports an error.", got=state.fault, fix="clear it at the robot, and drive again")
    return HandPose(state.stamp, state.position, state.quaternion, state.joint_position)


def _extents(poses: list[HandPose]) -> str:
    place = np.stack([pose.position for pose in poses])
    low, high = place.min(0), place.max(0)
    return ", ".join(f"{axis} {a:.3f} to {b:.3f} m" for axis, a, b in zip("xyz", low, high, strict=True))
