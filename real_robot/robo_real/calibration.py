"""Calibration of a camera to an arm with a ChArUco board: intrinsics, and the camera's pose in the hand or at the base.

The board's corners are found by OpenCV; the pose starts from the closed form of Park & Martin 1994, "Robot Sensor Calibration:
Solving AX = XB on the Euclidean Group", and is refined by minimising reprojection errors over camera and board together.
Shapes: N views, M corners seen in a view. Poses are (4, 4) matrices: the pose of a frame in another one maps points of the
first frame to the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from robo_rl.errors import InvalidSetting, require_allowed

Array = npt.NDArray[np.float64]
Picture = npt.NDArray[np.uint8]
View = tuple[Array, Array, Array]
"""Corners in the frame of the board (M, 3) [m] and in the picture (M, 2) [pixel], and the pose of the hand (4, 4)"""
LEAST_VIEWS = 8
LEAST_CORNERS = 8
"""smallest number of corners in a view that counts"""
LEAST_TURN = np.deg2rad(15.0)
"""[rad] least difference of the hand's orientations about two different axes; with less the pose is not determined"""


@dataclass(frozen=True)
class Charuco:
    """Settings of a ChArUco board: a chess board with a marker in each white square. Print it without scaling, and measure."""

    columns: int = 7
    """number of columns of squares, 3 to 30"""
    rows: int = 5
    """number of rows of squares, 3 to 30"""
    square: float = 0.03
    """[m] side of a square, above 0, to 1"""
    marker: float = 0.022
    """[m] side of a marker, above 0, below `square`"""

    def __post_init__(self) -> None:
        allowed = {
            "columns": (3 <= self.columns <= 30, "3 to 30"),
            "rows": (3 <= self.rows <= 30, "3 to 30"),
            "square": (0 < self.square <= 1, "above 0, to 1 [m]"),
            "marker": (0 < self.marker < self.square, "above 0, below square [m]"),
        }
        require_allowed(self, allowed)

    def board(self) -> Any:
        """Return OpenCV's board, with markers of the dictionary DICT_5X5_250."""
        dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_5X5_250)
        return cv2.aruco.CharucoBoard((self.columns, self.rows), self.square, self.marker, dictionary)

    def drawn(self, dots_per_metre: float = 10_000.0) -> Picture:
        """Return a picture (H, W) uint8 of the board for printing; dots_per_metre: [pixel/m] resolution."""
        width, height = (round(count * self.square * dots_per_metre) for count in (self.columns, self.rows))
        return np.asarray(self.board().generateImage((width, height)), np.uint8)

    def corners(self, picture: Picture) -> tuple[Array, Array] | None:
        """Find the board's corners in a picture (H, W) or (H, W, 3).

        Returns:
            Corners in the frame of the board (M, 3) [m] and in the picture (M, 2) [pixel]; None if M is below LEAST_CORNERS.
        """
        board = self.board()
        found, numbers, _, _ = cv2.aruco.CharucoDetector(board).detectBoard(picture)
        if numbers is None or len(numbers) < LEAST_CORNERS:
            return None
        points = np.asarray(board.getChessboardCorners(), np.float64)[np.ravel(numbers)]
        return points, np.asarray(found, np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class Intrinsics:
    """Intrinsic parameters of a camera: camera matrix and distortion, in OpenCV's pinhole model."""

    matrix: Array
    """(3, 3) [pixel] camera matrix"""
    distortion: Array
    """(5,) coefficients k1, k2, p1, p2, k3"""
    error: float
    """[pixel] root mean square of reprojection errors"""


@dataclass(frozen=True)
class HandEye:
    """Result of a calibration: the pose of the camera, and measures of its quality."""

    mounting: Literal["hand", "fixed"]
    """"hand" if the camera moves with the hand, "fixed" if it stands"""
    camera: Array
    """(4, 4) pose of the camera, in the frame of the hand if the camera moves with it, else in the frame of the base"""
    board: Array
    """(4, 4) pose of the board, in the frame of the base; in the frame of the hand if the camera is fixed"""
    intrinsics: Intrinsics
    error: float
    """[pixel] root mean square of the reprojection errors over all views"""
    position_spread: float
    """[m] standard deviation of the camera's position over calibrations that leave out one view each"""
    rotation_spread: float
    """[rad] root mean square of the camera's rotation between these calibrations and the result"""
    views: int
    """number of pictures that show the board"""
    view_errors: tuple[float | None, ...]
    """[pixel] root mean square of the reprojection errors of each picture; None for a picture that does not show the board"""
    coverage: float
    """share of the picture's area that the rectangle around the corners of all views covers, 0 to 1"""


def calibrate(
    pictures: Sequence[Picture],
    hands: Sequence[Array],
    board: Charuco,
    *,
    mounting: Literal["hand", "fixed"] = "hand",
    intrinsics: Intrinsics | None = None,
) -> HandEye:
    """Find the pose of a camera from pictures of a board and poses of the hand.

    Args:
        pictures: N pictures of one camera, (H, W) or (H, W, 3).
        hands: N poses (4, 4) of the hand in the frame of the base, one per picture.
        board: Settings of the board.
        mounting: "hand" if the camera moves with the hand and the board stands; "fixed" if the camera stands and the board
            moves with the hand.
        intrinsics: Intrinsics of the camera; None to find them from the same pictures.

    Raises:
        InvalidSetting: Too few pictures show the board, or the hand's orientations are too alike.
    """
    if len(pictures) != len(hands):
        raise InvalidSetting("Each picture needs a pose of the hand.", got=f"{len(pictures)} pictures, {len(hands)} poses")
    seen = [board.corners(picture) for picture in pictures]
    views: list[View] = [
        (*corners, np.asarray(hand, np.float64)) for corners, hand in zip(seen, hands, strict=True) if corners is not None
    ]
    if len(views) < LEAST_VIEWS:
        raise InvalidSetting(
            "Too few pictures show the board.",
            got=f"{len(views)} of {len(pictures)} with {LEAST_CORNERS} corners or more",
            allowed=f"{LEAST_VIEWS} or more",
            fix="light the board, move nearer, tilt it less; check columns, rows and the dictionary DICT_5X5_250",
        )
    _require_turns([hand for _, _, hand in views])
    size = pictures[0].shape[1::-1]
    intrinsics = intrinsics or _intrinsics(views, size)
    boards = [_board_in_camera(points, pixels, intrinsics) for points, pixels, _ in views]
    moving: list[Array] = [hand if mounting == "hand" else np.asarray(np.linalg.inv(hand)) for _, _, hand in views]
    camera = _park_martin(moving, boards)
    placed = moving[0] @ camera @ boards[0]
    solution = _refine(camera, placed, views, moving, intrinsics)
    others = [
        _refine(*solution[:2], [*views[:left], *views[left + 1 :]], [*moving[:left], *moving[left + 1 :]], intrinsics)
        for left in range(len(views))
    ]
    positions = np.stack([other[0][:3, 3] for other in others])
    turns = [Rotation.from_matrix(solution[0][:3, :3].T @ other[0][:3, :3]).magnitude() for other in others]
    return HandEye(
        mounting=mounting,
        camera=solution[0],
        board=solution[1],
        intrinsics=intrinsics,
        error=solution[2],
        position_spread=float(np.sqrt(positions.var(0).sum())),
        rotation_spread=float(np.sqrt(np.mean(np.square(turns)))),
        views=len(views),
        view_errors=_view_errors(seen, solution[3]),
        coverage=float(np.prod(np.ptp(np.concatenate([pixels for _, pixels, _ in views]), axis=0) / size)),
    )


def pose(position: npt.ArrayLike, rotation: Rotation) -> Array:
    """Return the pose (4, 4) with a position (3,) [m] and a rotation."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation.as_matrix(), position
    return matrix


def _intrinsics(views: Sequence[View], size: tuple[int, ...]) -> Intrinsics:
    points = [view[0].astype(np.float32) for view in views]
    pixels = [view[1].astype(np.float32) for view in views]
    error, matrix, distortion, _, _ = cv2.calibrateCamera(points, pixels, size, None, None)
    return Intrinsics(np.asarray(matrix, np.float64), np.ravel(distortion)[:5].astype(np.float64), float(error))


def _board_in_camera(points: Array, pixels: Array, intrinsics: Intrinsics) -> Array:
    _, turn, position = cv2.solvePnP(points, pixels, intrinsics.matrix, intrinsics.distortion)
    return pose(np.ravel(position), Rotation.from_rotvec(np.ravel(turn)))


def _park_martin(moving: Sequence[Array], boards: Sequence[Array]) -> Array:
    """Return X of A X = X B for all pairs of views, A = moving_j^-1 moving_i, B = board_j board_i^-1."""
    pairs = [(i, j) for i in range(len(moving)) for j in range(i)]
    first = [np.linalg.inv(moving[j]) @ moving[i] for i, j in pairs]
    second = [boards[j] @ np.linalg.inv(boards[i]) for i, j in pairs]
    logs = [np.stack([Rotation.from_matrix(m[:3, :3]).as_rotvec() for m in side]) for side in (first, second)]
    u, _, vt = np.linalg.svd(logs[0].T @ logs[1])  # the rotation that maps the logarithms of B onto those of A
    rotation = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    left = np.concatenate([a[:3, :3] - np.eye(3) for a in first])
    right = np.concatenate([rotation @ b[:3, 3] - a[:3, 3] for a, b in zip(first, second, strict=True)])
    position = np.linalg.lstsq(left, right, rcond=None)[0]
    return pose(position, Rotation.from_matrix(rotation))


def _refine(
    camera: Array,
    placed: Array,
    views: Sequence[View],
    moving: Sequence[Array],
    intrinsics: Intrinsics,
) -> tuple[Array, Array, float, Array]:
    """Minimise the reprojection errors over the poses of camera and board, from their first estimates `camera` and `placed`.

    Returns:
        Pose of the camera (4, 4), pose of the board (4, 4), root mean square error [pixel], and the error of each of the K
        corners of all views (K,) [pixel].
    """

    def unpacked(values: Array) -> tuple[Array, Array]:
        one, other = values[:6], values[6:]
        return pose(one[:3], Rotation.from_rotvec(one[3:])), pose(other[:3], Rotation.from_rotvec(other[3:]))

    def errors(values: Array) -> Array:
        camera, placed = unpacked(values)
        found = []
        for (points, pixels, _), move in zip(views, moving, strict=True):
            seen = np.linalg.inv(move @ camera) @ placed
            turn = Rotation.from_matrix(seen[:3, :3]).as_rotvec()
            projected, _ = cv2.projectPoints(points, turn, seen[:3, 3], intrinsics.matrix, intrinsics.distortion)
            found.append((projected.reshape(-1, 2) - pixels).ravel())
        return np.concatenate(found)

    start = np.concatenate([np.r_[m[:3, 3], Rotation.from_matrix(m[:3, :3]).as_rotvec()] for m in (camera, placed)])
    best = least_squares(errors, start, x_scale="jac", method="lm")
    camera, placed = unpacked(best.x)
    distances = np.linalg.norm(best.fun.reshape(-1, 2), axis=1)
    return camera, placed, float(np.sqrt(np.mean(np.square(distances)))), distances


def _view_errors(seen: Sequence[tuple[Array, Array] | None], distances: Array) -> tuple[float | None, ...]:
    """Return the root mean square error [pixel] of each picture, None for a picture without corners.

    Args:
        seen: Corners of each picture, None if it does not show the board.
        distances: (K,) [pixel] Errors of the corners of all pictures, in order.
    """
    found, begin = list[float | None](), 0
    for corners in seen:
        count = 0 if corners is None else len(corners[1])
        found.append(float(np.sqrt(np.mean(np.square(distances[begin : begin + count])))) if count else None)
        begin += count
    return tuple(found)


def _require_turns(hands: Sequence[Array]) -> None:
    """Raise InvalidSetting unless the hand turned about two axes that differ."""
    turns = np.stack([Rotation.from_matrix(hands[0][:3, :3].T @ hand[:3, :3]).as_rotvec() for hand in hands])
    spread = np.linalg.svd(turns, compute_uv=False) / np.sqrt(len(turns))
    if spread[1] < LEAST_TURN / 2:
        raise InvalidSetting(
            "The hand's orientations are too alike to find the camera's pose.",
            got="turns (root mean square) of {:.1f} and {:.1f} degrees about two axes".format(*np.rad2deg(spread[:2])),
            allowed=f"{np.rad2deg(LEAST_TURN) / 2:.1f} degrees or more about two axes",
            fix="tilt the hand by 20 to 30 degrees about different axes between pictures",
        )
