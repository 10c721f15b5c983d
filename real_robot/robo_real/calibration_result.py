"""Checks of the quality of a calibration, and the YAML file of its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import yaml
from scipy.spatial.transform import Rotation

from robo_real.calibration import Array, Charuco, HandEye
from robo_real.check import Finding

MOST_ERROR = 1.0
"""[pixel] largest root mean square of the reprojection errors"""
MOST_SPREAD, MOST_TURN_SPREAD = 0.005, np.deg2rad(0.5)
"""[m] and [rad] largest spread of the camera's pose between calibrations that leave out one view"""
MOST_TIMES = 3.0
"""multiple of the median of the views' errors, above which a view is an outlier"""
ENOUGH_VIEWS = 12
"""smallest number of views of a sound calibration"""
LEAST_COVERAGE = 0.3
"""smallest share of the picture that the corners of all views span"""


def quality(result: HandEye, names: Sequence[str]) -> Iterator[Finding]:
    """Yield the finding of each check of a calibration; names: names of the pictures, in the order of their errors."""
    error, median = result.error, float(np.median([error for error in result.view_errors if error is not None]))
    yield Finding(error <= MOST_ERROR, f"reprojection error {error:.2f} pixel (at most {MOST_ERROR})")
    yield Finding(
        result.position_spread <= MOST_SPREAD and result.rotation_spread <= MOST_TURN_SPREAD,
        f"without one view the camera moves by {1000 * result.position_spread:.1f} mm and"
        f" {np.rad2deg(result.rotation_spread):.2f} degrees (at most {1000 * MOST_SPREAD:.0f} and 0.5)",
    )
    yield Finding(result.views >= ENOUGH_VIEWS, f"{result.views} views show the board ({ENOUGH_VIEWS} or more)")
    for name, own in zip(names, result.view_errors, strict=True):
        if own is None:
            yield Finding(True, f"{name} does not show the board, and was left out")
        elif own > max(MOST_TIMES * median, MOST_ERROR):
            why = f"the others by {median:.2f}: did the hand move? delete its line"
            yield Finding(False, f"{name} is off by {own:.2f} pixel, {why}")
    covered = f"the corners span {result.coverage:.0%} of the picture ({LEAST_COVERAGE:.0%} or more)"
    yield Finding(result.coverage >= LEAST_COVERAGE, covered)


def result_file(result: HandEye, board: Charuco, names: Sequence[str], size: Sequence[int], facts: Mapping[str, Any]) -> str:
    """Return the text of the YAML file of a calibration.

    Args:
        result: Result of the calibration.
        board: Settings of the board.
        names: Names of the pictures.
        size: [pixel] Width and height of the pictures.
        facts: Further entries, written first.
    """
    found = [*quality(result, names)]
    used = {name: error for name, error in zip(names, result.view_errors, strict=True) if error is not None}
    content = {
        **facts,
        "is_sound": all(finding.is_fine for finding in found),
        "mounting": result.mounting,
        "camera": {"frame": "hand" if result.mounting == "hand" else "base", **_pose(result.camera)},
        "board": {"frame": "base" if result.mounting == "hand" else "hand", **_pose(result.board), **asdict(board)},
        "intrinsics": {
            "width": int(size[0]),
            "height": int(size[1]),
            "matrix": _rounded(result.intrinsics.matrix, 4),
            "distortion": _rounded(result.intrinsics.distortion, 6),
            "error": round(result.intrinsics.error, 4),
        },
        "error": round(result.error, 4),
        "position_spread": round(result.position_spread, 6),
        "rotation_spread": round(result.rotation_spread, 6),
        "coverage": round(result.coverage, 3),
        "views": {name: round(error, 3) for name, error in used.items()},
        "checks": [f"{'ok' if finding.is_fine else 'PROBLEM'}: {finding.text}" for finding in found],
    }
    head = "# Pose of a camera, by robo-rl robot calibrate: lengths in m, quaternions (w, x, y, z), errors in pixel and rad.\n"
    return head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)


def _pose(matrix: Array) -> dict[str, Any]:
    x, y, z, w = Rotation.from_matrix(matrix[:3, :3]).as_quat(canonical=True)
    place = _rounded(matrix[:3, 3], 6)
    return {"position": place, "quaternion": _rounded(np.array([w, x, y, z]), 8), "matrix": _rounded(matrix, 8)}


def _rounded(values: Array, digits: int) -> Any:
    return np.round(values, digits).tolist()
