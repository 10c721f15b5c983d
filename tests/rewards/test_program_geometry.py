"""Geometry and sums that programs may call agree with scipy and numpy."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robo_rl.rewards.programs import geometry
from robo_rl.rewards.programs.geometry import row_mean, row_norm, row_sum


def turns(number: int, seed: int) -> tuple[Rotation, np.ndarray]:
    rotation = Rotation.random(number, random_state=seed)
    return rotation, rotation.as_quat()[:, [3, 0, 1, 2]]


def test_quaternions_turn_as_scipys():
    (left, p), (right, q) = turns(50, 0), turns(50, 1)
    product, expected = geometry.quat_mul(p, q), (left * right).as_quat()[:, [3, 0, 1, 2]]
    np.testing.assert_allclose(np.abs(np.sum(product * expected, axis=1)), 1.0)
    np.testing.assert_allclose(geometry.quat_angle(p, q), (left.inv() * right).magnitude(), atol=1e-7)
    np.testing.assert_allclose(geometry.quat_angle(p, -q), geometry.quat_angle(p, q), atol=1e-12)
    np.testing.assert_allclose(geometry.quat_mul(p, geometry.quat_inv(p)), [[1, 0, 0, 0]] * 50, atol=1e-12)
    vectors = np.random.default_rng(2).normal(size=(50, 3))
    np.testing.assert_allclose(geometry.quat_rotate(p, vectors), left.apply(vectors), atol=1e-12)
    np.testing.assert_allclose(geometry.quat_to_matrix(p), left.as_matrix(), atol=1e-12)


def test_small_angles_are_exact():
    q = np.array([[np.cos(5e-9), np.sin(5e-9), 0, 0]])
    np.testing.assert_allclose(geometry.quat_angle(np.array([[1.0, 0, 0, 0]]), q), 1e-8, rtol=1e-6)


def test_points():
    rotation, q = turns(4, 3)
    generator = np.random.default_rng(4)
    points, others, position = generator.normal(size=(4, 6, 3)), generator.normal(size=(4, 5, 3)), generator.normal(size=(4, 3))
    moved = np.stack([rotation[row].apply(points[row]) + position[row] for row in range(4)])
    np.testing.assert_allclose(geometry.transform_points(position, q, points), moved, atol=1e-12)
    least = [min(np.linalg.norm(a - b) for a in points[row] for b in others[row]) for row in range(4)]
    np.testing.assert_allclose(geometry.point_cloud_min_dist(points, others), least)
    np.testing.assert_allclose(geometry.point_cloud_centre(points), points.mean(axis=1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 64, 65])
def test_column_sums_equal_numpy_and_ignore_other_rows(dtype, size):
    x = np.random.default_rng(size).normal(size=(64, size)).astype(dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    for ours, numpys in ((row_sum, np.sum), (row_mean, np.mean), (row_norm, np.linalg.norm)):
        for axis in (1, -1, 0):
            result = ours(x, axis=axis)
            np.testing.assert_allclose(result, numpys(x, axis=axis), rtol=tolerance, atol=tolerance)
            assert result.dtype == dtype
        if size <= 64:
            assert ours(x, axis=1)[5].tobytes() == ours(x[5:6], axis=1)[0].tobytes()
        np.testing.assert_allclose(ours(x, axis=1, keepdims=True), numpys(x, axis=1, keepdims=True), rtol=tolerance)
    assert row_sum(x > 0, axis=1).dtype == np.int64 and row_sum([1.0, 2.0]) == 3.0
    np.testing.assert_allclose(row_norm(x, 1, axis=1), np.linalg.norm(x, 1, axis=1))
