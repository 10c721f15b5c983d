"""Vectorised geometry that reward programs may call. Quaternions are (w, x, y, z) of unit length, as in MuJoCo; points are [m].

Every function takes arrays with the same leading axes, or none where it is to be the same for all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.programs.row_sums import row_norm

Array = npt.NDArray[Any]
"""As robo_rl.types.Array; that module is not loaded in the process that programs run in."""


def quat_mul(left: Array, right: Array) -> Array:
    """Returns (..., 4): first the turn `right`, then the turn `left`."""
    a, b, c, d = (left[..., part] for part in range(4))
    e, f, g, h = (right[..., part] for part in range(4))
    return np.stack(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        axis=-1,
    )


def quat_inv(quaternion: Array) -> Array:
    """Returns (..., 4): the turn back."""
    return np.asarray(np.asarray(quaternion) * np.array([1.0, -1.0, -1.0, -1.0]))


def quat_angle(first: Array, second: Array) -> Array:
    """Returns (...) [rad] in [0, pi]: the angle of the turn from one to the other; q and -q are the same turn.

    Four times the arc tangent of |p - q| / |p + q|, of which the smaller is above: exact for small angles too.
    """
    apart, along = row_norm(first - second, axis=-1), row_norm(first + second, axis=-1)
    return np.asarray(4.0 * np.arctan2(np.minimum(apart, along), np.maximum(apart, along)))


def quat_rotate(quaternion: Array, vector: Array) -> Array:
    """Returns (..., 3): the vector, turned."""
    axis, w = np.asarray(quaternion)[..., 1:], np.asarray(quaternion)[..., :1]
    across = 2.0 * np.cross(axis, vector)
    return np.asarray(vector + w * across + np.cross(axis, across))


def quat_to_matrix(quaternion: Array) -> Array:
    """Returns (..., 3, 3): the matrix of the turn; its columns are the turned axes."""
    columns = [quat_rotate(quaternion, np.broadcast_to(axis, (*np.shape(quaternion)[:-1], 3))) for axis in np.eye(3)]
    return np.stack(columns, axis=-1)


def transform_points(position: Array, quaternion: Array, points: Array) -> Array:
    """Returns (..., M, 3) [m]: points (..., M, 3) given in a frame at position (..., 3), turned by quaternion (..., 4)."""
    turned: Array = np.asarray(points) @ np.swapaxes(quat_to_matrix(quaternion), -1, -2)
    return np.asarray(turned + np.asarray(position)[..., None, :])


def point_cloud_min_dist(first: Array, second: Array) -> Array:
    """Returns (...) [m]: the least distance between a point of (..., M, 3) and one of (..., L, 3)."""
    apart = np.asarray(first)[..., :, None, :] - np.asarray(second)[..., None, :, :]
    return np.asarray(np.sqrt(np.min(np.sum(apart * apart, axis=-1), axis=(-1, -2))))


def point_cloud_centre(points: Array) -> Array:
    """Returns (..., 3) [m]: the mean of points (..., M, 3)."""
    return np.asarray(np.mean(points, axis=-2))
