"""Hand-eye calibration on drawn boards with known poses."""

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robo_real.calibration import Charuco, calibrate, pose
from robo_rl.errors import InvalidSetting

BOARD = Charuco()
MATRIX = np.array([[620.0, 0, 322], [0, 615.0, 238], [0, 0, 1]])
DOTS = 4000.0
CAMERA = pose([0.06, -0.01, 0.04], Rotation.from_euler("xyz", [8, -5, 92], degrees=True))  # in the hand
PLACED = pose([0.45, -0.1, 0.01], Rotation.from_euler("xyz", [180, 0, 20], degrees=True))  # of the board, in the base


def seen(board_in_camera):
    """Draws the board as a pinhole camera sees it, on grey, blurred as a lens does and with noise."""
    drawn = BOARD.drawn(DOTS)
    frame = board_in_camera[:3, [0, 1, 3]] @ np.diag([1 / DOTS, 1 / DOTS, 1.0])
    homography = MATRIX @ frame
    large = cv2.warpPerspective(drawn, np.diag([2, 2, 1.0]) @ homography, (1280, 960), flags=cv2.INTER_AREA, borderValue=128)
    picture = cv2.resize(cv2.GaussianBlur(large, (3, 3), 0), (640, 480), interpolation=cv2.INTER_AREA)
    noise = np.random.default_rng(0).normal(0, 2, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def views(mounting, count=14):
    """Poses of the hand such that the board lies before the camera, 30 to 45 cm away, tilted about two axes."""
    random, pictures, hands = np.random.default_rng(1), [], []
    middle = np.array([BOARD.columns * BOARD.square / 2, BOARD.rows * BOARD.square / 2, 0])
    for _ in range(count):
        tilt = Rotation.from_rotvec(np.deg2rad(random.uniform(-28, 28, 3)))
        distance = np.array([*random.uniform(-0.03, 0.03, 2), random.uniform(0.3, 0.45)])
        board = pose(distance - tilt.apply(middle), tilt)
        moving = PLACED @ np.linalg.inv(board) @ np.linalg.inv(CAMERA)
        held = CAMERA @ board @ np.linalg.inv(PLACED)  # the camera stands at CAMERA in the base, the hand holds the board
        pictures.append(seen(board))
        hands.append(moving if mounting == "hand" else held)
    return pictures, hands


@pytest.mark.parametrize("mounting", ["hand", "fixed"])
def test_known_camera_is_found(mounting):
    pictures, hands = views(mounting)
    result = calibrate(pictures, hands, BOARD, mounting=mounting)
    assert np.linalg.norm(result.camera[:3, 3] - CAMERA[:3, 3]) < 0.002
    assert Rotation.from_matrix(result.camera[:3, :3].T @ CAMERA[:3, :3]).magnitude() < np.deg2rad(0.3)
    assert np.linalg.norm(result.board[:3, 3] - PLACED[:3, 3]) < 0.002
    assert result.intrinsics.matrix == pytest.approx(MATRIX, abs=6)
    assert result.error < 0.7 and result.position_spread < 0.001 and result.views == len(pictures)


def test_wrong_mounting_shows_in_the_error():
    pictures, hands = views("hand")
    assert calibrate(pictures, hands, BOARD, mounting="fixed").error > 5.0


def test_one_wrong_pose_shows_in_error_and_spread():
    pictures, hands = views("hand")
    good = calibrate(pictures, hands, BOARD)
    hands[3] = hands[3] @ pose([0.03, 0, 0], Rotation.identity())
    bad = calibrate(pictures, hands, BOARD)
    assert bad.error > 3 * good.error and bad.position_spread > 3 * good.position_spread


def test_pictures_without_the_board_are_left_out_or_refused():
    pictures, hands = views("hand", 10)
    grey = np.full((480, 640), 128, np.uint8)
    assert calibrate([*pictures, grey], [*hands, hands[0]], BOARD).views == 10
    with pytest.raises(InvalidSetting, match="Too few pictures show the board"):
        calibrate([*pictures[:7], grey, grey], hands[:9], BOARD)
    with pytest.raises(InvalidSetting, match="Too few pictures"):
        calibrate(pictures, hands, Charuco(columns=9, rows=4))


def test_orientations_that_are_too_alike_are_refused():
    pictures, hands = views("hand", 8)
    still = [pose(hand[:3, 3], Rotation.from_matrix(hands[0][:3, :3])) for hand in hands]
    with pytest.raises(InvalidSetting, match="too alike"):
        calibrate(pictures, still, BOARD)


def test_each_picture_needs_a_pose():
    pictures, hands = views("hand", 8)
    with pytest.raises(InvalidSetting, match="8 pictures, 7 poses"):
        calibrate(pictures, hands[:7], BOARD)


@pytest.mark.parametrize("setting", [{"columns": 2}, {"square": 0.0}, {"marker": 0.03}, {"square": float("nan")}])
def test_boards_out_of_range_are_refused(setting):
    with pytest.raises(InvalidSetting):
        Charuco(**setting)
