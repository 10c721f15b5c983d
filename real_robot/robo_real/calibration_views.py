"""Views for a calibration: pictures of the board and poses of the hand, in a folder.

    FOLDER/views.jsonl    a line per view: {"picture": "view-001.png", "position": [x, y, z], "quaternion": [w, x, y, z]}
    FOLDER/view-001.png   ...

Positions are in m, in the frame of the base. Quaternions are (w, x, y, z). Further keys are kept and not read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

from robo_real.calibration import Array, Charuco, Picture, pose
from robo_real.hand_pose import HandPose, read_hand_pose
from robo_real.http_client import RobotClient
from robo_real.rotations import between, quaternion, to_xyzw
from robo_rl.errors import InvalidSetting, RobotError
from robo_rl.system.durable_files import write_durably

LIST = "views.jsonl"
PERIOD = 0.05
"""Period [s] of the measurements of the hand."""
STILL = 0.5
"""Time [s] for which the hand must stand before a view is taken, since the newest picture may be that old."""
MOST_MOTION, MOST_TURN = 0.0005, 0.002
"""[m] and [rad] largest changes of the pose of a hand that counts as standing"""
APART, TURNED = 0.02, np.deg2rad(5)
"""[m] or [rad] least distance of a new view from every other, since a nearer view adds nothing"""


@dataclass(frozen=True)
class CalibrationView:
    """One picture of the board and the pose of the hand."""

    name: str
    """name of the picture's file"""
    picture: Picture
    """picture (H, W, 3) uint8, BGR as OpenCV reads it"""
    hand: Array
    """(4, 4) pose of the hand in the frame of the base"""


def read_views(folder: Path) -> list[CalibrationView]:
    """Return the views of a folder; raises InvalidSetting, with the line or picture, if one cannot be used."""
    path = folder / LIST
    if not path.is_file():
        form = '{"picture": FILE, "position": [x, y, z], "quaternion": [w, x, y, z]}'
        raise InvalidSetting("There are no views.", got=str(path), allowed=f"a line per view: {form}", fix="--robot URL")
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    views = [_view(folder, number, line) for number, line in enumerate(lines, 1)]
    if len({view.picture.shape for view in views}) > 1:
        got = sorted({view.picture.shape[1::-1] for view in views})
        raise InvalidSetting("The pictures have different sizes.", got=got, allowed="those of one camera, uncropped")
    return views


def _view(folder: Path, number: int, line: str) -> CalibrationView:
    where = f"{folder / LIST}, line {number}"
    try:
        facts = json.loads(line)
        place, turn = (np.array(facts[name], np.float64) for name in ("position", "quaternion"))
        name = str(facts["picture"])
        if place.shape != (3,) or turn.shape != (4,) or not np.isfinite([*place, *turn]).all():
            raise ValueError("position needs three finite numbers, quaternion four")
        if abs(np.linalg.norm(turn) - 1) > 0.01:
            raise ValueError("the quaternion is not of norm 1")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(f"{where} is no view.", got=f"{type(error).__name__}: {error}", fix="delete the line") from None
    picture = cv2.imread(str(folder / name)) if Path(name).name == name else None
    if picture is None:
        raise InvalidSetting(f"{where} has no picture.", got=name, allowed="a PNG or JPEG in the folder", fix="delete the line")
    return CalibrationView(name, np.asarray(picture, np.uint8), pose(place, Rotation.from_quat(to_xyzw(quaternion(turn)))))


class ViewCollector:
    """Collector that takes a view whenever the hand stands still at a new pose and sees the board; moves nothing."""

    def __init__(self, client: RobotClient, camera: str, board: Charuco, folder: Path) -> None:
        """Open the folder; views that it already has count as taken.

        Args:
            client: Client of the robot's server.
            camera: Name of the server's camera, such as camera_wrist.
            board: Settings of the board.
            folder: Folder for the views; made if it does not exist.

        Raises:
            InvalidSetting: A view in the folder cannot be used.
        """
        self._client, self._camera, self._board, self._folder = client, camera, board, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._taken = [view.hand for view in read_views(folder)] if (folder / LIST).exists() else []
        self._since: HandPose | None = None  # pose in which the hand stands, with the stamp of its first measurement
        self._judged: HandPose | None = None

    def __len__(self) -> int:
        return len(self._taken)

    def collect(self, count: int, tell: Callable[[str], object]) -> None:
        """Take views until there are `count`, or until Ctrl-C; tell: called with a message for each pose of a standing hand."""
        try:
            while len(self) < count:
                if said := self.look():
                    tell(said)
                time.sleep(PERIOD)
        except KeyboardInterrupt:
            return

    def look(self) -> str:
        """Measure the hand once, and take a view if it stands at a new pose and the board is seen.

        Returns:
            A message: the view was taken, or why not. "" while the hand moves, and after the first message for a pose.
        """
        before = read_hand_pose(self._client)
        if self._since is None or not _are_same(self._since, before):
            self._since = before
            return ""
        if before.stamp - self._since.stamp < STILL or self._judged is self._since:
            return ""
        frame = self._client.frame(self._camera)
        after = read_hand_pose(self._client)
        if frame.stamp < self._since.stamp + STILL / 2 or not _are_same(self._since, after):
            return ""
        self._judged = self._since
        hand = pose(after.position, Rotation.from_quat(to_xyzw(after.quaternion)))
        if (near := self._nearest(hand)) is not None:
            return f"view {near + 1} was taken from nearly here: move by 2 cm or turn by 5 degrees"
        picture = np.ascontiguousarray(frame.picture[..., ::-1])
        if self._board.corners(picture) is None:
            return "the board is not seen: too far, tilted or dark, or other settings than the printed ones"
        self._keep(picture, hand, after)
        return f"view {len(self)} taken; tilt the hand about another axis for the next"

    def _nearest(self, hand: Array) -> int | None:
        for number, other in enumerate(self._taken):
            turn = Rotation.from_matrix(other[:3, :3].T @ hand[:3, :3]).magnitude()
            if np.linalg.norm(hand[:3, 3] - other[:3, 3]) < APART and turn < TURNED:
                return number
        return None

    def _keep(self, picture: Picture, hand: Array, measured: HandPose) -> None:
        names = {path.name for path in self._folder.iterdir()}
        name = next(found for number in range(1, 10_000) if (found := f"view-{number:03}.png") not in names)
        done, content = cv2.imencode(".png", picture)
        if not done:
            raise RobotError("The camera's picture cannot be stored.", got=picture.shape)
        write_durably(self._folder / name, content.tobytes())
        facts: dict[str, Any] = {"picture": name, "position": measured.position.tolist(), "quaternion": [*measured.quaternion]}
        with (self._folder / LIST).open("a") as file:
            file.write(json.dumps(facts | {"stamp": measured.stamp, "camera": self._camera}) + "\n")
        self._taken.append(hand)


def _are_same(a: HandPose, b: HandPose) -> bool:
    turn = np.linalg.norm(between(a.quaternion, b.quaternion))
    return bool(np.linalg.norm(a.position - b.position) < MOST_MOTION and turn < MOST_TURN)
