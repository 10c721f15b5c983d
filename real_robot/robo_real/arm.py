"""Arm with a gripper: its measurements, its targets, and the protocols of its driver and its scene."""

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
    """One measurement of an arm, as a driver returns it. Positions and vectors are in the frame of the base."""

    stamp: float
    """Time of the measurement [s] by the robot's clock."""
    position: Array
    """Measured position (3,) [m] of the point between the fingers."""
    quaternion: Quaternion
    """Orientation (w, x, y, z) of the hand; its z axis points out of the hand."""
    velocity: Array
    """Velocity (6,) of the hand: linear [m/s], then angular [rad/s]."""
    force: Array
    """Force (3,) [N] that the surroundings exert on the hand."""
    torque: Array
    """(3,) [N m] that the surroundings exert on the hand"""
    joint_position: Array
    """Measured angle of each joint [rad], (J,)."""
    joint_velocity: Array
    """Measured velocity of each joint [rad/s], (J,)."""
    jacobian: Array
    """(6, J) velocity of the hand per joint velocity; all zero if the robot reports no Jacobian"""
    opening: float
    """Measured distance [m] between the fingers."""
    fault: str | None = None
    """Error that the robot itself reports, in words; None if the robot can move"""

    @property
    def is_finite(self) -> bool:
        """True if every number is finite."""
        numbers = (self.position, self.velocity, self.force, self.torque, self.joint_position, self.joint_velocity)
        scalars = (self.stamp, self.opening, *self.quaternion)
        return all(np.isfinite(array).all() for array in (*numbers, self.jacobian)) and bool(np.isfinite(scalars).all())


@dataclass(frozen=True)
class ArmTarget:
    """Target pose of the hand, in the frame of the base, and target of the gripper."""

    position: Array
    """Target position (3,) [m] of the hand, frame base."""
    quaternion: Quaternion
    """Target orientation (w, x, y, z) of the hand."""
    opening: float | None
    """[m] between the fingers; None sends no command to the gripper, which goes on standing, moving or gripping"""


@dataclass(frozen=True)
class JointTarget:
    """Target positions of the joints."""

    position: Array
    """Target angle of each joint [rad], (J,)."""


@dataclass(frozen=True)
class Response:
    """First-order response of the hand to a set point: the velocity of the hand tends to (set point - position) / lag."""

    lag: float
    """Time constant [s] with which the hand follows the position of its set point."""
    quickest: float
    """[s] smallest time constant of the velocity, which is that of the posture and direction with the least inertia"""

    def share(self, duration: float) -> float:
        """Return the share in [0, 1] of a change of velocity that is reached within `duration` [s] at the most."""
        return 1 - math.exp(-duration / self.quickest)


class Hold:
    """Command to an arm that it must stay where it is; it has no content."""


HOLD = Hold()
SetPoint = ArmTarget | JointTarget | Hold
"""Command to an arm for one tick of its control: a pose of the hand, positions of the joints, or to stay in place"""


class SetPoints(Protocol):
    """Source of set points, which the control loop of an arm asks once per tick."""

    def tick(self, state: ArmState, now: float) -> SetPoint | None:
        """Return the next set point, or None to keep the last one.

        Args:
            state: The newest measurement.
            now: [s] Present time by the arm's clock.
        """

    def displaced(self) -> None:
        """Note that something other than a set point has moved the arm, such as the reset of a simulated scene."""


class ArmDriver(Protocol):
    """Driver of one kind of arm. Every call returns or raises RobotUnavailable within a fraction of a second.

    A driver need not check its commands, since they have passed the guard. `move` is called once per tick with a set point
    near the hand, not with a far pose.
    Optional attributes:

    - `period` [s] between two set points, 0.02 by default;
    - `response`, a Response to set points; without this attribute the set points themselves keep speed and acceleration;
    - `attach(set_points)`, for an arm with its own control loop, which calls `set_points.tick` instead of receiving `move`;
    - `home` (J,) [rad], the posture of a joint reset, if the driver takes a JointTarget;
    - `tare()`, which zeroes the force sensor: later forces and torques are relative to the present ones;
    - `freedrive(is_on)`, which lets a person move the arm by hand, or holds the arm again; freedrive ends with the process;
    - `has_gripper`, False if there is none;
    - `width` [m] between the fingers of the open gripper: a measured opening far beyond it is a fault of the measurement;
    - `cameras` and `newest`, of an ImagingDriver, if the robot has cameras of its own; `spec` then has their pictures.
    """

    name: str
    clock: Clock

    def connect(self) -> None:
        """Open the connection to the arm; raises RobotUnavailable. The constructor must open nothing."""

    def read(self) -> ArmState:
        """Return the newest measurement; raises RobotUnavailable if there is none."""

    def move(self, target: ArmTarget) -> None:
        """Send the hand to a target and return at once."""

    def hold(self) -> None:
        """Make the arm stay in place. Any thread may call this at any time."""

    def recover(self) -> None:
        """Clear the robot's own error; called only at the request of a person."""

    def close(self) -> None:
        """Close the connection."""


class Scene(Protocol):
    """Scene of a task around a robot: observations of its objects, success and reset."""

    def reset(self, seed: int) -> None:
        """Bring arm and objects to the start of an episode."""

    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Return name -> array of the observations of the objects, without those of the arm itself."""

    def success(self) -> bool | None:
        """Return whether the task is done; None if the scene cannot detect this."""
