"""Rotations as unit quaternions (w, x, y, z), and a cone of allowed orientations.

Quaternions are tuples of plain floats, which are faster than arrays of four numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Quaternion = tuple[float, float, float, float]
Vector = tuple[float, float, float]
Numbers = Sequence[float] | npt.NDArray[Any]
SLACK = 1e-6
"""[rad] by which an orientation inside a cone may be outside"""
DOWN: Quaternion = (0.0, 1.0, 0.0, 0.0)
"""Orientation of a hand that points straight down, with its x axis along the x axis of the base"""


def quaternion(values: Numbers) -> Quaternion:
    """Return four numbers, not all zero, as a unit quaternion."""
    w, x, y, z = (float(value) for value in values)
    norm = math.sqrt(w * w + x * x + y * y + z * z)
    return (w / norm, x / norm, y / norm, z / norm)


def from_xyzw(values: Numbers) -> Quaternion:
    """Return the unit quaternion (w, x, y, z) of four numbers in the order x, y, z, w."""
    x, y, z, w = values
    return quaternion((w, x, y, z))


def to_xyzw(q: Quaternion) -> list[float]:
    """Return the numbers of a quaternion in the order x, y, z, w."""
    return [q[1], q[2], q[3], q[0]]


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the rotation of `b` followed by `a`."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


def inverse(q: Quaternion) -> Quaternion:
    """Return the inverse rotation."""
    return (q[0], -q[1], -q[2], -q[3])


def rotation_vector(q: Quaternion) -> Vector:
    """Return axis times angle [rad], with an angle of at most pi."""
    w, x, y, z = q if q[0] >= 0 else (-q[0], -q[1], -q[2], -q[3])
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-12 else 2.0 * math.atan2(sine, w) / sine
    return (scale * x, scale * y, scale * z)


def from_rotation_vector(vector: Numbers) -> Quaternion:
    """Return the rotation about `vector` (3,) by its norm [rad]; the inverse of `rotation_vector`."""
    x, y, z = (float(value) for value in vector)
    angle = math.sqrt(x * x + y * y + z * z)
    scale = 0.5 if angle < 1e-12 else math.sin(angle / 2) / angle
    return quaternion((math.cos(angle / 2), scale * x, scale * y, scale * z))


def between(a: Quaternion, b: Quaternion) -> Vector:
    """Return the rotation vector [rad], in the base frame, from `a` to `b`."""
    return rotation_vector(multiply(b, inverse(a)))


def turned(q: Quaternion, vector: Numbers) -> Quaternion:
    """Return `q`, turned by a rotation vector (3,) [rad] in the base frame."""
    return multiply(from_rotation_vector(vector), q)


def rotate(q: Quaternion, vector: Numbers) -> Vector:
    """Return a vector (3,), given in the frame that `q` rotates, in the outer frame."""
    _, x, y, z = multiply(multiply(q, (0.0, float(vector[0]), float(vector[1]), float(vector[2]))), inverse(q))
    return (x, y, z)


def heading(q: Quaternion) -> float:
    """Return the angle [rad] about the vertical from the x axis of the base to the rotated x axis."""
    w, x, y, z = q
    return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))


def pointing_down(yaw: float) -> Quaternion:
    """Return the orientation of a hand that points straight down with the heading `yaw` [rad].

    The element x of the quaternion is not negative if |yaw| is at most pi.
    """
    return (0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0)


def tilt_and_turn(q: Quaternion, reference: Quaternion) -> tuple[Vector, float]:
    """Split an orientation, relative to a reference, into a tilt of the z axis and a turn about the z axis.

    With tilt t and turn a: q = reference * from_rotation_vector(t) * from_rotation_vector((0, 0, a)).

    Returns:
        The tilt as a rotation vector (3,) [rad], and the turn [rad].
    """
    relative = multiply(inverse(reference), q)
    norm = math.hypot(relative[0], relative[3])
    turn = (1.0, 0.0, 0.0, 0.0) if norm < 1e-9 else (relative[0] / norm, 0.0, 0.0, relative[3] / norm)
    return rotation_vector(multiply(relative, inverse(turn))), rotation_vector(turn)[2]


def from_tilt_and_turn(tilt: Numbers, turn: float, reference: Quaternion) -> Quaternion:
    """Return the orientation with a tilt (3,) [rad] and a turn [rad]; the inverse of `tilt_and_turn`."""
    return multiply(reference, multiply(from_rotation_vector(tilt), from_rotation_vector((0.0, 0.0, turn))))


@dataclass(frozen=True)
class OrientationCone:
    """Set of the orientations that are within `tilt` and `turn` of a reference."""

    tilt: float
    """[rad] largest angle between the z axes of the orientation and of the reference"""
    turn: float
    """[rad] largest turn about the z axis, in either direction"""
    reference: Quaternion
    """(w, x, y, z) orientation in the middle"""

    def nearest(self, direction: Quaternion) -> Quaternion:
        """Return the nearest orientation inside the cone."""
        tilt, turn = tilt_and_turn(direction, self.reference)
        size = float(np.linalg.norm(tilt))
        if size <= self.tilt and abs(turn) <= self.turn:
            return direction
        share = min(1.0, self.tilt / size) if size > 0 else 1.0
        turn = min(max(turn, -self.turn), self.turn)
        return from_tilt_and_turn([share * value for value in tilt], turn, self.reference)

    def excess(self, direction: Quaternion) -> float:
        """Return the angle [rad] from an orientation to the nearest one inside the cone, 0 if it is inside."""
        return float(np.linalg.norm(between(self.nearest(direction), direction)))

    def contains(self, direction: Quaternion) -> bool:
        """Return whether an orientation is inside the cone."""
        return self.excess(direction) <= SLACK
