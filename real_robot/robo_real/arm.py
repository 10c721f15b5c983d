"""An arm with a gripper: what is measured of it if it is sent, and what its driver must be able to do."""

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
    """[s] of the robot's clock when it was measured"""
    position: Array
    """(3,) [m] of the point between the fingers"""
    quaternion: Quaternion
    """(w, x, y, z) of the hand, z out of it"""
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
    """(6, J) velocity of the hand per joint velocity; all zero where the robot does not tell it"""
    opening: float
    """[m] between the fingers"""
    fault: str | None = None
    """The robot's own word for why it does not move, None while it does"""

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
    opening: float
    """[m]"""


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
    """[s] time constant with which the velocity follows in the posture and direction of the least inertia"""

    def share(self, duration: float) -> float:
        """Return the share of a change of velocity that is made in a duration [s], at most."""
        return 1 - math.exp(-duration / self.quickest)


class Hold:
    """The arm is to stay where it is."""


HOLD = Hold()
SetPoint = ArmTarget | JointTarget | Hold
"""Command to an arm for one tick of its control."""


class SetPoints(Protocol):
    """Says at each tick of an arm's control where it goes next."""

    def tick(self, state: ArmState, now: float) -> SetPoint | None:
        """Return the next set point, None to leave the arm to the last one; now: [s] of the arm's clock."""

    def displaced(self) -> None:
        """The arm was put elsewhere by hand, as at the reset of a simulated scene."""


class ArmDriver(Protocol):
    """Speaks with one kind of arm. Every call returns or raises RobotUnavailable within a fraction of a second.

    A driver judges nothing: whatever reaches it has passed the guard. `move` gets a stream of near set points, not far poses.
    A driver may also have

    - `period` [s] between two set points, 0.02 by default;
    - `response`, a Response; unknown by default, and then the set points themselves keep speed and acceleration;
    - `attach(set_points)`, for an arm with a control loop of its own, which asks for a set point at each tick: then `move`
      is not called;
    - `home` (J,) [rad], the posture of a joint reset, if it takes a JointTarget;
    - `has_gripper`, False if there is none.
    """

    name: str
    clock: Clock

    def connect(self) -> None:
        """Opens the link; nothing is opened in a constructor."""

    def read(self) -> ArmState:
        """Returns the newest measurement."""

    def move(self, target: ArmTarget) -> None:
        """Sends the hand to a target and returns at once."""

    def hold(self) -> None:
        """Makes the arm stay where it is; from any thread, at any time."""

    def recover(self) -> None:
        """Clears the robot's own error; called only when a person asked for it."""

    def close(self) -> None:
        """Closes the link."""


class Scene(Protocol):
    """Scene of a task around a robot: observations of its objects, success and reset."""

    def reset(self, seed: int) -> None:
        """Brings the arm and the things to where an episode begins."""

    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the observations that the arm does not measure of itself."""

    def success(self) -> bool | None:
        """Returns whether the task is done, None if nothing here can tell."""
