"""Limits of a workspace from poses to which a person drove the hand: box, tilt, turn and joints, with margins.

All other limits are copied from base limits. Poses that cannot be right are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import yaml

from robo_real.arm import Array
from robo_real.hand_pose import HandPose
from robo_real.limits import Limits
from robo_real.rotations import tilt_and_turn
from robo_rl.errors import InvalidSetting, require_allowed

LEAST_POSES = 20
LEAST_EXTENT = 0.05
"""[m] smallest extent of the poses along two of the axes"""
MOST_EXTENT = 1.5
"""[m] largest extent of the poses along an axis, since the hand of one arm gets no farther in a task"""
MOST_HAND_SPEED = 3.0
"""[m/s] largest speed between two poses; a faster change is a jump of the measurement, or of the tool frame"""
COLUMN = 0.1
"""[m] radius around the vertical axis of the arm's base, which no box may touch"""
MOST_TILT = np.deg2rad(45)
"""[rad] largest tilt of the driven hand, since actions keep the hand pointing down"""
RATES = ("speed", "acceleration", "jerk", "turn_speed", "turn_acceleration", "turn_jerk")
"""Limits of the hand's motion that change in the same proportion when its largest speed is changed."""


@dataclass(frozen=True)
class Margins:
    """Margins that are added around the driven poses."""

    sides: float = 0.02
    """[m] margin at the sides and the top of the box, 0 to 0.2"""
    floor: float = 0.0
    """Distance [m], 0 to 0.05, that the workspace keeps above the lowest driven position; 0 if the hand was driven down to
    the table."""
    angle: float = 0.1
    """[rad] margin of tilt and turn, 0 to 0.5; at least 0.01 is added"""
    joints: float = 0.35
    """[rad] margin of each joint, 0 to 1.5, since a corner of the box may need more than the poses that were driven"""

    def __post_init__(self) -> None:
        allowed = {
            "sides": (0 <= self.sides <= 0.2, "0 to 0.2 [m]"),
            "floor": (0 <= self.floor <= 0.05, "0 to 0.05 [m]"),
            "angle": (0 <= self.angle <= 0.5, "0 to 0.5 [rad]"),
            "joints": (0 <= self.joints <= 1.5, "0 to 1.5 [rad]"),
        }
        require_allowed(self, allowed)


def propose_limits(
    poses: Sequence[HandPose], base: Limits, margins: Margins | None = None, speed: float | None = None
) -> Limits:
    """Return limits around driven poses of the hand.

    Args:
        poses: Measured poses, LEAST_POSES or more.
        base: Limits that give the rates, forces, times and all else that the poses do not show. The new joint limits stay
            within its joint limits.
        margins: Margins around the poses; by default those of `Margins()`.
        speed: [m/s] Speed of the hand, above 0, to 1; the other rates are scaled in proportion. None for the speed of `base`.

    Raises:
        InvalidSetting: There are too few poses, or they cannot be right.
    """
    margins = margins or Margins()
    if speed is not None and not 0 < speed <= 1:
        raise InvalidSetting("The speed of the hand is out of range.", got=speed, allowed="above 0, to 1 [m/s]")
    _require_sound(poses, base)
    place, joints = (np.stack(values) for values in zip(*((pose.position, pose.joints) for pose in poses), strict=True))
    low = place.min(0) - [margins.sides, margins.sides, margins.floor]
    high = place.max(0) + margins.sides
    _require_clear_of_base(low, high)
    tilts, turns = zip(*(tilt_and_turn(pose.quaternion, base.reference) for pose in poses), strict=True)
    tilt = float(np.linalg.norm(tilts, axis=1).max())
    if tilt > MOST_TILT:
        raise InvalidSetting(
            "The hand leaned too far from its reference, which points down.",
            got=f"{np.rad2deg(tilt):.0f} degrees",
            allowed=f"{np.rad2deg(MOST_TILT):.0f} degrees: actions keep it pointing down",
            fix="drive again with the hand pointing down; is the tool's z axis set to point out of it?",
        )
    scale = 1.0 if speed is None else speed / base.speed
    return replace(
        base,
        box_low=(*_rounded(low[:2], np.floor), *_rounded(low[2:], np.ceil)),  # never below what was driven
        box_high=_rounded(high, np.ceil),
        tilt=round(tilt + max(margins.angle, 0.01), 3),
        turn=round(min(float(np.abs(turns).max()) + max(margins.angle, 0.01), np.pi), 3),
        joint_low=tuple(map(max, _rounded(joints.min(0) - margins.joints, np.floor), base.joint_low)),
        joint_high=tuple(map(min, _rounded(joints.max(0) + margins.joints, np.ceil), base.joint_high)),
        **{name: round(scale * getattr(base, name), 6) for name in RATES},
    )


def write_limits(limits: Limits, notes: Sequence[str]) -> str:
    """Return the text of a limits file (YAML), which `limits_from` reads; the notes are comments at its beginning."""
    content: dict[str, Any] = {
        name: [float(number) for number in value] if isinstance(value, tuple) else value
        for name, value in asdict(limits).items()
    }
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)
    return "".join(f"# {note}\n" for note in notes) + text


def _require_sound(poses: Sequence[HandPose], base: Limits) -> None:
    if len(poses) < LEAST_POSES:
        allowed = f"{LEAST_POSES} or more"
        raise InvalidSetting("Too few positions.", got=len(poses), allowed=allowed, fix="drive the hand for longer")
    finite = [bool(np.isfinite([*pose.position, *pose.quaternion, *pose.joints, pose.stamp]).all()) for pose in poses]
    if not all(finite):
        raise InvalidSetting("A measured pose is not finite.", got=f"pose {finite.index(False) + 1} of {len(poses)}")
    place, stamps = np.stack([pose.position for pose in poses]), np.array([pose.stamp for pose in poses])
    extent = np.ptp(place, axis=0)
    if np.sort(extent)[1] < LEAST_EXTENT:
        raise InvalidSetting(
            "The hand was hardly moved.",
            got=f"{_millimetres(extent)} mm along x, y, z",
            allowed=f"{LEAST_EXTENT * 1000:.0f} mm or more along two axes",
            fix="drive it to every corner of the workspace, down to the table and up to the top",
        )
    if extent.max() > MOST_EXTENT:
        raise InvalidSetting(
            "The positions are too far apart for one workspace.",
            got=f"{_millimetres(extent)} mm along x, y, z",
            allowed=f"{MOST_EXTENT * 1000:.0f} mm",
            fix="drive in the workspace of the task alone; are lengths in m?",
        )
    steps, times = np.linalg.norm(np.diff(place, axis=0), axis=1), np.diff(stamps)
    if (jumps := steps > MOST_HAND_SPEED * np.maximum(times, 1e-3) + 0.01).any():
        at = int(np.argmax(jumps))
        raise InvalidSetting(
            "The measured hand jumped.",
            got=f"{1000 * steps[at]:.0f} mm in {times[at]:.3f} s",
            allowed=f"{MOST_HAND_SPEED} m/s",
            fix="was the tool frame changed meanwhile? drive again",
        )
    joints = np.stack([pose.joints for pose in poses])
    if joints.shape[1] != len(base.joint_low):
        got = f"{len(base.joint_low)} of the base, {joints.shape[1]} measured"
        raise InvalidSetting("The base has another number of joints.", got=got, fix="--base with limits of this robot")
    if (joints < base.joint_low).any() or (joints > base.joint_high).any():
        got = f"{joints.min(0).round(2).tolist()} to {joints.max(0).round(2).tolist()} rad"
        raise InvalidSetting("A joint was beyond the limits of the base.", got=got, allowed=[base.joint_low, base.joint_high])


def _require_clear_of_base(low: Array, high: Array) -> None:
    if np.linalg.norm(np.clip(0.0, low[:2], high[:2])) < COLUMN:
        raise InvalidSetting(
            "The box contains the robot's own base.",
            got=f"x {low[0]:.3f} to {high[0]:.3f}, y {low[1]:.3f} to {high[1]:.3f} m",
            allowed=f"{COLUMN} m or more from the axis of the base",
            fix="drive on one side of the robot alone",
        )


def _rounded(values: Array, towards: Any) -> tuple[Any, ...]:
    """Return values in whole thousandths."""
    return tuple(float(value) for value in np.round(towards(np.round(1000 * values, 6)) / 1000, 3))


def _millimetres(extent: Array) -> str:
    return ", ".join(f"{1000 * value:.0f}" for value in extent)
