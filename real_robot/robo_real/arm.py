"""Arm with a gripper: measurements, targets, and the protocols of driver and scene."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from robo_real.clock import Clock
from robo_real.rotations import Quaternion

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ArmState:
    """One measurement. Positions and vectors are in the frame of the base."""

    stamp: float
    """[s] of the robot's clock at the measurement"""
    position: Array
    """(3,) [m] of the point between the fingers"""
    quaternion: Quaternion
    """(w, x, y, z) of the hand, z pointing out of it"""
    velocity: Array
    """(6,) linear [m/s], then angular [rad/s]"""
    force: Array
    """(3,) [N] that the surroundings exert on the hand"""
    torque: Array
    """(3,) [N m]"""
    joint_position: Array
    """(J,) [rad]"""
    joint_velocity: Array
    """(J,) [rad/s]"""
    jacobian: Array
    """(6, J) velocity of the hand per joint velocity; all zero if the robot does not report it"""
    opening: float
    """[m] between the fingers"""
    fault: str | None = None
    """The robot's own error, None if it can move"""

    @property
    def is_finite(self) -> bool:
        """True if every number is finite."""
        numbers = (self.position, self.velocity, self.force, self.torque, self.joint_position, self.joint_velocity)
        scalars = (self.stamp, self.opening, *self.quaternion)
        return all(np.isfinite(array).all() for array in (*numbers, self.jacobian)) and bool(np.isfinite(scalars).all())


@dataclass(frozen=True)
class ArmTarget:
    """Target pose of the hand."""

    position: Array
    """(3,) [m]"""
    quaternion: Quaternion
    """(w, x, y, z)"""
    opening: float | None
    """[m]; None leaves the gripper as it is, whether it stands, moves or grips"""


@dataclass(frozen=True)
class JointTarget:
    """Target positions of the joints."""

    position: Array
    """(J,) [rad]"""


@dataclass(frozen=True)
class Response:
    """First-order response of the hand to a set point: its velocity tends to (set point - position) / lag."""

    lag: float
    """[s]"""
    quickest: float
    """[s] smallest time constant of the velocity, in the posture and direction of least inertia"""

    def share(self, duration: float) -> float:
        """Return the largest share of a velocity change that happens within a duration [s]."""
        return 1 - math.exp(-duration / self.quickest)


class Hold:
    """Command to stay in place."""


HOLD = Hold()
SetPoint = ArmTarget | JointTarget | Hold
"""Command to an arm for one tick of its control."""


class SetPoints(Protocol):
    """Source of one set point per control tick of an arm."""

    def tick(self, state: ArmState, now: float) -> SetPoint | None:
        """Return the next set point, None to keep the last one; now: [s] of the arm's clock."""

    def displaced(self) -> None:
        """Note that the arm was moved from outside, as by the reset of a simulated scene."""


class ArmDriver(Protocol):
    """Driver of one kind of arm. Every call returns or raises RobotUnavailable within a fraction of a second.

    A driver checks nothing: its commands have passed the guard. `move` gets a stream of near set points, not far poses.
    Optional attributes:

    - `period` [s] between two set points, 0.02 by default;
    - `response`, a Response; unknown by default, and then the set points themselves keep speed and acceleration;
    - `attach(set_points)`, for an arm with its own control loop, which calls `set_points.tick` instead of receiving `move`;
    - `home` (J,) [rad], the posture of a joint reset, if it takes a JointTarget;
    - `tare()`, which zeroes the force sensor: later forces and torques are relative to the present ones;
    - `freedrive(is_on)`, which lets a person move the arm by hand, or holds it again; it ends with the process;
    - `has_gripper`, False if there is none;
    - `width` [m] between the fingers of the open gripper: a measured opening far beyond it is a fault of the measurement;
    - `cameras` and `newest`, of an ImagingDriver, if the robot has cameras of its own; `spec` then has their pictures.
    """

    name: str
    clock: Clock

    def connect(self) -> None:
        """Open the connection; a constructor opens nothing."""

    def read(self) -> ArmState:
        """Return the newest measurement."""

    def move(self, target: ArmTarget) -> None:
        """Send the hand to a target and return at once."""

    def hold(self) -> None:
        """Make the arm stay in place; callable from any thread at any time."""

    def recover(self) -> None:
        """Clear the robot's own error; called only at the request of a person."""

    def close(self) -> None:
        """Close the connection."""


class Scene(Protocol):
    """Scene of a task around a robot: observations of its objects, success and reset."""

    def reset(self, seed: int) -> None:
        """Bring arm and objects to the start of an episode."""

    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Return the observations that are not of the arm itself."""

    def success(self) -> bool | None:
        """Return whether the task is done, None if that cannot be detected."""
