"""Vectorised geometry that reward programs may call, and sums over the columns of a row that do not depend on other rows.

Quaternions are (w, x, y, z) of unit length, as in MuJoCo; points are [m]. Functions take arrays with the same leading axes, or
none if it is to be the same for all rows.

numpy picks the order of a sum by the shape of the whole array, so that the last bit of a row's sum may depend on how many other
rows there are. Here columns are added one after another; and for the few columns of a position or an action that is 2 to 4
times as fast, which pays for part of the way to another process. All other cases are numpy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""As robo_rl.types.Array; that module is not loaded in the process that programs run in."""
MOST_ADDED, MOST_COLUMNS = 8, 64
"""Largest number of columns that are added as arrays, then the largest for which np.einsum is used, which goes along each
row."""


def row_sum(values: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the sum of an array, as np.sum; the sum of a row does not depend on other rows."""
    if _is_rowwise(values, axis, keepdims):
        return _added(values)
    return np.sum(values, axis=axis, keepdims=keepdims)


def row_mean(values: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean of an array, as np.mean; the mean of a row does not depend on other rows."""
    if _is_rowwise(values, axis, keepdims):
        return _added(values) / values.shape[1]
    return np.mean(values, axis=axis, keepdims=keepdims)


def row_norm(values: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return what np.linalg.norm returns for these arguments: by default the Euclidean length of the whole array.

    The lengths of the rows of a 2-D array (`axis` 1 or -1) are summed such that a row's result does not depend on other rows.
    """
    if (ord is None or ord == 2) and _is_rowwise(values, axis, keepdims):
        if values.shape[1] > MOST_ADDED:
            return np.sqrt(np.einsum("ij,ij->i", values, values))
        return np.sqrt(_added(values * values))
    return np.linalg.norm(values, ord=ord, axis=axis, keepdims=keepdims)


def _is_rowwise(values: Any, axis: Any, keepdims: bool) -> bool:
    return (
        type(values) is np.ndarray
        and type(axis) is int
        and values.ndim == 2
        and axis in {1, -1}
        and not keepdims
        and values.dtype.kind == "f"
        and 2 <= values.shape[1] <= MOST_COLUMNS
    )


def _added(values: Array) -> Array:
    if values.shape[1] > MOST_ADDED:
        return np.asarray(np.einsum("ij->i", values))
    total: Array = values[:, 0] + values[:, 1]
    for column in range(2, values.shape[1]):
        total += values[:, column]
    return total


def quat_mul(left: Array, right: Array) -> Array:
    """Return (..., 4): first the turn `right`, then the turn `left`."""
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
    """Return (..., 4): the turn back."""
    return np.asarray(np.asarray(quaternion) * np.array([1.0, -1.0, -1.0, -1.0]))


def quat_angle(first: Array, second: Array) -> Array:
    """Return (...) [rad] in [0, pi]: the angle of the turn from one to the other; q and -q are the same turn.

    Four times the arc tangent of |p - q| / |p + q|, of which the smaller is above: exact for small angles too.
    """
    apart, along = row_norm(first - second, axis=-1), row_norm(first + second, axis=-1)
    return np.asarray(4.0 * np.arctan2(np.minimum(apart, along), np.maximum(apart, along)))


def quat_rotate(quaternion: Array, vector: Array) -> Array:
    """Return (..., 3): the vector, turned."""
    axis, w = np.asarray(quaternion)[..., 1:], np.asarray(quaternion)[..., :1]
    across = 2.0 * np.cross(axis, vector)
    return np.asarray(vector + w * across + np.cross(axis, across))


def quat_to_matrix(quaternion: Array) -> Array:
    """Return (..., 3, 3): the matrix of the turn; its columns are the turned axes."""
    columns = [quat_rotate(quaternion, np.broadcast_to(axis, (*np.shape(quaternion)[:-1], 3))) for axis in np.eye(3)]
    return np.stack(columns, axis=-1)


def transform_points(position: Array, quaternion: Array, points: Array) -> Array:
    """Return (..., M, 3) [m]: points (..., M, 3) given in a frame at position (..., 3), turned by quaternion (..., 4)."""
    turned: Array = np.asarray(points) @ np.swapaxes(quat_to_matrix(quaternion), -1, -2)
    return np.asarray(turned + np.asarray(position)[..., None, :])


def point_cloud_min_dist(first: Array, second: Array) -> Array:
    """Return (...) [m]: the least distance between a point of (..., M, 3) and one of (..., L, 3)."""
    apart = np.asarray(first)[..., :, None, :] - np.asarray(second)[..., None, :, :]
    return np.asarray(np.sqrt(np.min(np.sum(apart * apart, axis=-1), axis=(-1, -2))))


def point_cloud_centre(points: Array) -> Array:
    """Return (..., 3) [m]: the mean of points (..., M, 3)."""
    return np.asarray(np.mean(points, axis=-2))
