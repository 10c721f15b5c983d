"""Hand-eye calibration on drawn boards with known poses, from folders and beside a served twin."""

import json
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace

import cv2
import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from robo_cli.main import dispatch
from robo_real.arm import ArmTarget
from robo_real.calibration import Charuco, calibrate, pose
from robo_real.calibration_page import DOTS as PAGE_DOTS
from robo_real.calibration_page import RULER, board_page
from robo_real.calibration_views import ViewCollector, read_views
from robo_real.cameras import Frame
from robo_real.guarded_arm import GuardedArm
from robo_real.http_client import RobotClient
from robo_real.limits import TWIN
from robo_real.rotations import DOWN, quaternion, to_xyzw, turned
from robo_real.server.application import Application, RobotServer
from robo_real.twin import Twin, TwinOptions
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


@pytest.mark.slow
@pytest.mark.parametrize("mounting", ["hand", "fixed"])
def test_known_camera_is_found(mounting):
    pictures, hands = views(mounting)
    result = calibrate(pictures, hands, BOARD, mounting=mounting)
    assert np.linalg.norm(result.camera[:3, 3] - CAMERA[:3, 3]) < 0.002
    assert Rotation.from_matrix(result.camera[:3, :3].T @ CAMERA[:3, :3]).magnitude() < np.deg2rad(0.3)
    assert np.linalg.norm(result.board[:3, 3] - PLACED[:3, 3]) < 0.002
    assert result.intrinsics.matrix == pytest.approx(MATRIX, abs=6)
    assert result.error < 0.7 and result.position_spread < 0.001 and result.views == len(pictures)


@pytest.mark.slow
def test_wrong_mounting_shows_in_the_error():
    pictures, hands = views("hand")
    assert calibrate(pictures, hands, BOARD, mounting="fixed").error > 5.0


@pytest.mark.slow
def test_one_wrong_pose_shows_in_error_and_spread():
    pictures, hands = views("hand")
    good = calibrate(pictures, hands, BOARD)
    hands[3] = hands[3] @ pose([0.03, 0, 0], Rotation.identity())
    bad = calibrate(pictures, hands, BOARD)
    assert bad.error > 3 * good.error and bad.position_spread > 3 * good.position_spread


@pytest.mark.slow
def test_pictures_without_the_board_are_left_out_or_refused():
    pictures, hands = views("hand", 10)
    grey = np.full((480, 640), 128, np.uint8)
    assert calibrate([*pictures, grey], [*hands, hands[0]], BOARD).views == 10
    with pytest.raises(InvalidSetting, match="Too few pictures show the board"):
        calibrate([*pictures[:7], grey, grey], hands[:9], BOARD)
    with pytest.raises(InvalidSetting, match="Too few pictures"):
        calibrate(pictures, hands, Charuco(columns=9, rows=4))


@pytest.mark.slow
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


@pytest.mark.slow
def test_errors_of_views_find_the_one_that_is_off():
    pictures, hands = views("hand")
    grey = np.full((480, 640), 128, np.uint8)
    hands[3] = hands[3] @ pose([0.02, 0, 0], Rotation.identity())
    errors = calibrate([*pictures, grey], [*hands, hands[0]], BOARD).view_errors
    assert errors[-1] is None and len(errors) == 15
    assert int(np.argmax(errors[:-1])) == 3


# the printed board


@pytest.mark.parametrize("name", ["board.png", "board.PDF"])
def test_board_is_printed_in_true_scale(name, tmp_path, capsys):
    out = tmp_path / name
    assert dispatch(["robot", "board", str(out), "--board.square", "0.025", "--board.marker", "0.018"]) == 0
    assert "100 %" in capsys.readouterr().out
    content = out.read_bytes()
    if name.endswith("PDF"):
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", content)
        points = [float(side) * 25.4 / 72 for side in box.groups()]
        assert points == pytest.approx([297, 210], abs=0.05) and b"/Width 2970" in content and b"DCTDecode" not in content
        return
    at = content.index(b"pHYs")
    per_metre = int.from_bytes(content[at + 4 : at + 8], "big")
    assert per_metre == pytest.approx(10_000, abs=2) and content[at + 12] == 1
    points, pixels = Charuco(square=0.025, marker=0.018).corners(cv2.imread(str(out)))
    assert len(points) == 24
    millimetres = 1000 * np.linalg.norm(pixels[0] - pixels[-1]) / per_metre
    assert millimetres == pytest.approx(1000 * np.linalg.norm(points[0] - points[-1]), abs=0.05)


def test_page_grows_with_the_board_and_has_a_ruler():
    assert board_page(Charuco()).shape == (2100, 2970)
    large = board_page(Charuco(columns=12, rows=9, square=0.04, marker=0.03))
    assert large.shape[1] >= 4800 and large.shape[0] >= 3600
    ruler = large[large.shape[0] - 120]
    assert (ruler == 0).sum() == pytest.approx(RULER * PAGE_DOTS, abs=2)


def test_board_of_another_format_is_refused(tmp_path):
    with pytest.raises(InvalidSetting, match=r"\.pdf or \.png"):
        dispatch(["robot", "board", str(tmp_path / "board.svg")])


# from a folder


def write_folder(folder, mounting="hand", count=14):
    folder.mkdir()
    pictures, hands = views(mounting, count)
    with (folder / "views.jsonl").open("w") as file:
        for number, (picture, hand) in enumerate(zip(pictures, hands, strict=True)):
            x, y, z, w = Rotation.from_matrix(hand[:3, :3]).as_quat()
            cv2.imwrite(str(folder / f"{number}.png"), picture)
            facts = {"picture": f"{number}.png", "position": hand[:3, 3].tolist(), "quaternion": [w, x, y, z]}
            file.write(json.dumps(facts) + "\n")
    return folder


def spoil(folder, line, **changes):
    lines = (folder / "views.jsonl").read_text().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | changes)
    (folder / "views.jsonl").write_text("\n".join(lines))


@pytest.mark.slow
def test_folder_gives_a_sound_result(tmp_path, capsys):
    folder, out = write_folder(tmp_path / "views", "fixed"), tmp_path / "front.yaml"
    assert dispatch(["robot", "calibrate", str(folder), "--mounting", "fixed", "--out", str(out)]) == 0
    assert "PROBLEM" not in capsys.readouterr().out
    found = yaml.safe_load(out.read_text())
    assert found["is_sound"] and found["camera"]["frame"] == "base" and found["board"]["square"] == 0.03
    np.testing.assert_allclose(found["camera"]["position"], CAMERA[:3, 3], atol=0.002)
    w, x, y, z = found["camera"]["quaternion"]
    np.testing.assert_allclose(Rotation.from_quat([x, y, z, w]).as_matrix(), CAMERA[:3, :3], atol=0.006)
    np.testing.assert_allclose(np.array(found["camera"]["matrix"])[:3, 3], found["camera"]["position"], atol=1e-6)
    np.testing.assert_allclose(found["intrinsics"]["matrix"], MATRIX, atol=6)
    assert (found["intrinsics"]["width"], found["intrinsics"]["height"]) == (640, 480) and len(found["views"]) == 14


@pytest.mark.slow
def test_view_that_moved_and_few_views_are_problems(tmp_path, capsys):
    folder, out = write_folder(tmp_path / "views", count=9), tmp_path / "wrist.yaml"
    first = json.loads((folder / "views.jsonl").read_text().splitlines()[4])
    spoil(folder, 4, position=(np.array(first["position"]) + np.array([0.03, 0, 0])).tolist())
    assert dispatch(["robot", "calibrate", str(folder), "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "PROBLEM  reprojection error" in said and "PROBLEM  9 views" in said
    assert not yaml.safe_load(out.read_text())["is_sound"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"position": [1, 2]}, "line 3 is no view"),
        ({"position": [1, 2, float("nan")]}, "line 3 is no view"),
        ({"quaternion": [1, 1, 0, 0]}, "not of norm 1"),
        ({"picture": "gone.png"}, "line 3 has no picture"),
        ({"picture": "../views/0.png"}, "line 3 has no picture"),
        ({"picture": "views.jsonl"}, "line 3 has no picture"),
    ],
)
def test_damaged_views_are_named(changes, said, tmp_path):
    folder = write_folder(tmp_path / "views", count=8)
    spoil(folder, 2, **changes)
    with pytest.raises(InvalidSetting, match=said):
        dispatch(["robot", "calibrate", str(folder), "--out", str(tmp_path / "camera.yaml")])
    assert not (tmp_path / "camera.yaml").exists()


@pytest.mark.slow
def test_torn_lists_other_sizes_and_missing_folders_are_told(tmp_path):
    folder = write_folder(tmp_path / "views", count=8)
    with (folder / "views.jsonl").open("a") as file:
        file.write('{"picture": "0.p')
    with pytest.raises(InvalidSetting, match="line 9 is no view"):
        read_views(folder)
    spoil(write_folder(tmp_path / "other", count=8), 0)
    cv2.imwrite(str(tmp_path / "other" / "0.png"), np.zeros((100, 100), np.uint8))
    with pytest.raises(InvalidSetting, match="different sizes"):
        read_views(tmp_path / "other")
    with pytest.raises(InvalidSetting, match="no views"):
        read_views(tmp_path / "none")


# beside a served twin

FIXED = pose([0.9, 0.0, 0.25], Rotation.from_matrix(np.array([[0, 0, -1], [1, 0, 0], [0, -1, 0]], float)))  # looks along -x
HOME = ArmTarget(np.array([0.5, 0.0, 0.25]), DOWN, 0.0)


def hand_matrix(state):
    return pose(state.position, Rotation.from_quat(to_xyzw(quaternion(state.quaternion))))


class BoardCamera:
    """Fixed camera whose picture shows the board in the hand of a simulated arm, drawn from the plant's own pose."""

    def __init__(self, twin):
        self.twin, self.number = twin, 0
        before_camera = pose([-0.105, -0.075, 0.4], Rotation.identity())
        at_home = pose(HOME.position, Rotation.from_quat(to_xyzw(HOME.quaternion)))
        self.in_hand = np.linalg.inv(at_home) @ FIXED @ before_camera

    def newest(self):
        state = self.twin.read()
        self.number += 1
        picture = seen(np.linalg.inv(FIXED) @ hand_matrix(state) @ self.in_hand)
        return Frame(np.repeat(picture[..., None], 3, axis=2), state.stamp, self.number)

    def close(self): ...


@pytest.fixture
def cell():
    """A served twin that holds the board before a fixed camera, and the arm of its process."""
    twin = Twin(TwinOptions(speed=4.0))
    robot = GuardedArm(twin, TWIN, spec=twin.spec, scene=twin)
    robot.connect()
    server = RobotServer(Application(robot, {"camera_front": BoardCamera(twin)}, plain_clients=True), port=0)
    server.start()
    yield server, robot
    server.close()


def poses_to_drive(count):
    random = np.random.default_rng(4)
    for number in range(count):
        axis = (np.array([1.0, 0, 0]), np.array([0, 1.0, 0]))[number % 2]
        turn = turned(
            turned(DOWN, random.uniform(0.2, 0.28) * axis * random.choice([-1, 1])), [0, 0, random.uniform(-0.4, 0.4)]
        )
        yield ArmTarget(HOME.position + random.uniform(-0.05, 0.05, 3), turn, 0.0)


@pytest.mark.slow
def test_camera_beside_a_served_twin_is_found(cell, tmp_path, capsys):
    server, robot = cell
    done = threading.Event()

    def taken():
        with suppress(OSError):
            return (tmp_path / "views" / "views.jsonl").read_text().count("\n")
        return 0

    def drive():
        robot.arm()
        for target in poses_to_drive(40):
            before, end = taken(), time.monotonic() + 5
            while taken() == before and time.monotonic() < end and not done.is_set():
                with suppress(Exception):
                    robot.move(target)
                time.sleep(0.02)

    thread = threading.Thread(target=drive)
    thread.start()
    folder, out = tmp_path / "views", tmp_path / "front.yaml"
    words = ["robot", "calibrate", str(folder), "--robot", server.url, "--camera", "camera_front", "--mounting", "fixed"]
    try:
        status = dispatch([*words, "--count", "13", "--out", str(out)])
    finally:
        done.set()
        thread.join()
    said = capsys.readouterr().out
    found = yaml.safe_load(out.read_text())
    assert status == 0, said
    np.testing.assert_allclose(found["camera"]["position"], FIXED[:3, 3], atol=0.004)
    turn = Rotation.from_matrix(np.array(found["camera"]["matrix"])[:3, :3].T @ FIXED[:3, :3]).magnitude()
    assert turn < np.deg2rad(0.5) and "view 13 taken" in said and len(read_views(folder)) == 13


@pytest.mark.slow
def test_collector_takes_each_view_once_at_rest(cell, tmp_path):
    server, robot = cell
    collector = ViewCollector(RobotClient(server.url), "camera_front", BOARD, tmp_path / "views")

    def looked():
        end = time.monotonic() + 30
        while not (said := collector.look()):
            assert time.monotonic() < end
        return said

    def stand(target):
        robot.arm()
        end = time.monotonic() + 60
        while np.linalg.norm(away := target.position - robot.driver.read().position) > 0.003:
            assert time.monotonic() < end
            step = away * min(1.0, 0.06 / np.linalg.norm(away))  # a farther pose is refused as a jump
            robot.move(replace(target, position=target.position - away + step))
            time.sleep(0.01)

    stand(HOME)
    assert "view 1 taken" in looked() and len(collector) == 1
    robot.move(ArmTarget(HOME.position + np.array([0, 0.002, 0]), DOWN, 0.0))
    assert "nearly here" in looked() and len(collector) == 1
    stand(ArmTarget(np.array([0.5, 0.25, 0.25]), DOWN, 0.0))
    assert "board is not seen" in looked() and len(collector) == 1
    again = ViewCollector(RobotClient(server.url), "camera_front", BOARD, tmp_path / "views")
    assert len(again) == 1 and robot.guard.mode not in ("stopped", "fault")
    assert [view.name for view in read_views(tmp_path / "views")] == ["view-001.png"]
