"""Every kind of camera keeps its promises. One row per kind."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from robo_real.camera_devices.opencv import OpenCVCamera, OpenCVOptions
from robo_real.camera_devices.realsense import RealSenseCamera, RealSenseOptions
from robo_real.conformance import CAMERA_CHECKS
from robo_rl.entry_points import known, load


@pytest.fixture
def film(tmp_path):
    """Returns the path of a film of noise."""
    path = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 20, (64, 48))
    for seed in range(4):
        writer.write(np.random.default_rng(seed).integers(0, 256, (48, 64, 3), np.uint8))
    writer.release()
    return path


@pytest.fixture
def rows(film, monkeypatch):
    """Returns kind -> function that makes a camera over a stand-in for its device."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "real_robot"))
    import realsense_peer

    monkeypatch.setitem(sys.modules, "pyrealsense2", realsense_peer)
    monkeypatch.setattr(realsense_peer, "BUS", realsense_peer.Bus())
    return {
        "opencv": lambda: OpenCVCamera(OpenCVOptions(device=str(film))),
        "realsense": lambda: RealSenseCamera(RealSenseOptions(serial="0001")),
    }


@pytest.mark.parametrize("check", CAMERA_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["opencv", "realsense"])
def test_cameras(kind, check, rows):
    check(rows[kind])


def test_every_kind_of_camera_has_a_row(rows):
    assert set(known("cameras")) == set(rows)
    for kind in rows:
        assert load("cameras", kind).options().__dataclass_params__.frozen
