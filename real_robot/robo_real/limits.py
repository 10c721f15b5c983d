"""Limits of position, speed and force. No number has a default: the operator of a robot decides each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from robo_real.rotations import DOWN, Quaternion
from robo_rl.errors import InvalidSetting
from robo_rl.settings import settings_as
from robo_rl.system.plain_files import read_yaml


@dataclass(frozen=True)
class Limits:
    """Limits that the guard enforces. Every number must be finite; times are of the robot's clock."""

    box_low: tuple[float, float, float]
    """[m] lowest x, y, z of the hand, in the frame of the base"""
    box_high: tuple[float, float, float]
    """[m] highest x, y, z of the hand"""
    tilt: float
    """[rad] largest angle between the z axes of the hand and of `reference`"""
    turn: float
    """[rad] largest turn of the hand about its own z axis, in either direction from `reference`"""
    speed: float
    """[m/s] largest speed of the hand"""
    acceleration: float
    """[m/s^2] largest acceleration of the hand while speeding up; slowing down is not limited"""
    jerk: float
    """[m/s^3] largest jerk of the targets of actions while speeding up"""
    turn_speed: float
    """[rad/s] largest rotation speed of the hand"""
    turn_acceleration: float
    """[rad/s^2] largest acceleration of the rotation while speeding up"""
    turn_jerk: float
    """[rad/s^3] largest jerk of the rotation of actions' targets while speeding up"""
    reach: float
    """[m] largest distance of a set point from the measured hand along each axis. An impedance controller presses with at most
    this distance times its stiffness"""
    reach_turn: float
    """[rad] largest angle between a set point and the measured hand"""
    jump: float
    """[m] distance of a target from the measured hand along an axis, above which the target is refused instead of shortened"""
    joint_low: tuple[float, ...]
    """[rad] lowest position of each joint; a measurement below it stops the arm"""
    joint_high: tuple[float, ...]
    """[rad] highest position of each joint; a measurement above it stops the arm"""
    joint_margin: float
    """[rad] distance before a joint's limit within which the joint may only move away from the limit"""
    joint_speed: tuple[float, ...]
    """[rad/s] largest speed of each joint"""
    opening: float
    """[m] largest opening of the gripper"""
    soft_force: float
    """[N] force along an axis above which the hand may not press further"""
    hard_force: float
    """[N] norm of the force above which the arm is stopped"""
    hard_torque: float
    """[N m] norm of the torque above which the arm is stopped"""
    command_age: float
    """[s] largest age of the measurement that a command answers"""
    state_age: float
    """[s] largest age of the newest measurement, and longest time with identical ones during a motion"""
    late_in_a_row: int
    """consecutive late commands allowed; the next one stops the arm"""
    hold_after: float
    """[s] without a command until the arm holds"""
    stop_after: float
    """[s] without a command until the arm stops and must be re-armed by a person"""
    dead_man: float | None
    """[s] validity of one signal of the dead-man switch; None if there is no switch, as for a simulation"""
    stiffness: float | None = None
    """[N/m] largest stiffness that a client may set in the robot's impedance controller; None: clients may set none"""
    turn_stiffness: float | None = None
    """[N m/rad] largest rotational stiffness that a client may set; None: clients may set none"""
    reference: Quaternion = DOWN
    """(w, x, y, z) orientation of the hand at which tilt and turn are 0; straight down by default"""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value is None and field.name in _OPTIONAL) and not np.isfinite(np.asarray(value, np.float64)).all():
                raise InvalidSetting(f"The limit {field.name!r} is not finite.", got=value, allowed="finite numbers")
        for name in _POSITIVE:
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise InvalidSetting(f"The limit {name!r} is out of range.", got=getattr(self, name), allowed="above 0")
        pairs = [("box_low", "box_high"), ("joint_low", "joint_high")]
        for low, high in pairs:
            a, b = getattr(self, low), getattr(self, high)
            if len(a) != len(b) or not all(x < y for x, y in zip(a, b, strict=True)):
                raise InvalidSetting(f"{low} is not below {high}.", got=(a, b), allowed="as many numbers, each the lower")
        if len(self.joint_speed) != len(self.joint_low):
            raise InvalidSetting("joint_speed has not one number per joint.", got=self.joint_speed, allowed=len(self.joint_low))
        if abs(sum(x * x for x in self.reference) - 1) > 1e-6:
            raise InvalidSetting("The reference is no unit quaternion.", got=self.reference, allowed="(w, x, y, z) of norm 1")
        _require_order(self, "soft_force", "hard_force")
        _require_order(self, "hold_after", "stop_after")
        _require_order(self, "reach", "jump")


def _require_order(limits: Limits, low: str, high: str) -> None:
    a, b = getattr(limits, low), getattr(limits, high)
    if a >= b:
        raise InvalidSetting(f"The limit {low!r} is not below {high!r}.", got=(a, b), allowed=f"{low} < {high}")


_OPTIONAL = ("dead_man", "stiffness", "turn_stiffness")
_POSITIVE = (
    *("speed", "acceleration", "jerk", "turn_speed", "turn_acceleration", "turn_jerk", "reach", "reach_turn", "jump"),
    *("stiffness", "turn_stiffness"),
    *("opening", "soft_force", "hard_force", "hard_torque", "command_age", "state_age", "late_in_a_row", "hold_after"),
    *("stop_after", "dead_man", "tilt", "turn", "joint_margin"),
)

TWIN = Limits(
    box_low=(0.28, -0.30, 0.012),
    box_high=(0.70, 0.30, 0.40),
    tilt=0.3,
    turn=1.8,
    speed=0.8,
    acceleration=16.0,
    jerk=800.0,
    turn_speed=3.5,
    turn_acceleration=70.0,
    turn_jerk=3500.0,
    reach=0.02,
    reach_turn=0.25,
    stiffness=6000.0,
    turn_stiffness=300.0,
    jump=0.1,
    joint_low=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    joint_high=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    joint_margin=0.01,
    joint_speed=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    opening=0.08,
    soft_force=40.0,
    hard_force=150.0,
    hard_torque=60.0,
    command_age=0.2,
    state_age=0.2,
    late_in_a_row=10,
    hold_after=0.15,
    stop_after=10.0,
    dead_man=None,
)
"""Limits of the simulated arm: its tasks run as fast as in the simulation, even if the client also learns and evaluates.
Not for a real arm."""


def careful_limits(joints: int) -> Limits:
    """Return slow and weak limits for an arm with `joints` joints.

    Box and joint limits are placeholders (10 m, 2 pi rad) that bound nothing: set them before an arm moves.
    """
    return Limits(
        box_low=(-10.0,) * 3,
        box_high=(10.0,) * 3,
        tilt=0.2,
        turn=0.8,
        speed=0.1,
        acceleration=1.0,
        jerk=50.0,
        turn_speed=0.5,
        turn_acceleration=5.0,
        turn_jerk=250.0,
        reach=0.01,
        reach_turn=0.1,
        stiffness=2000.0,
        turn_stiffness=150.0,
        jump=0.05,
        joint_low=(-2 * np.pi,) * joints,
        joint_high=(2 * np.pi,) * joints,
        joint_margin=0.1,
        joint_speed=(0.5,) * joints,
        opening=0.08,
        soft_force=15.0,
        hard_force=40.0,
        hard_torque=10.0,
        command_age=0.15,
        state_age=0.1,
        late_in_a_row=5,
        hold_after=0.15,
        stop_after=1.0,
        dead_man=0.3,
    )


def limits_from(path: Path) -> Limits:
    """Load limits from a YAML file.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidSetting: A limit is missing or impossible.
        UnknownName: A key is no limit.
    """
    found: Any = read_yaml(path)
    limits: Limits = settings_as(Limits, found, source=str(path))
    return limits
