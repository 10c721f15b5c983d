"""Cameras of the serving machine: their process, their faults, and what the arm does then, measured at the plant."""

import json
import os
import re
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest

from robo_real.camera_devices.opencv import OpenCVCamera, OpenCVOptions, find_serial, usb_identity
from robo_real.camera_devices.realsense import RealSenseCamera, RealSenseOptions
from robo_real.camera_process import CameraOptions, CameraProcess, CameraSettings, CheckedPictures, correlation
from robo_real.clock import MonotonicClock
from robo_real.environment import RobotEnv
from robo_real.remote_robot import RemoteRobot
from robo_real.serving import ServerSettings, build_server
from robo_rl.errors import (
    CameraChanged,
    CameraFault,
    CameraFrozen,
    CameraStale,
    InvalidSetting,
    MissingExtra,
    RobotStopped,
    UnknownName,
)

sys.path.insert(0, str(Path(__file__).parent))

import realsense_peer

KIND = "scripted_camera:ScriptedCamera"
ALONG = np.array([0.3, 0, 0, 0, 1], np.float32)
TOLD = 0.5
"""[s] until a fault is known, and the arm holds"""
BUSY = "other programs keep this machine from driving a robot in real time; the test in step shows the same"


@pytest.fixture
def device(tmp_path, monkeypatch):
    """Returns a function that changes the state of the scripted camera, and its settings."""
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    path = tmp_path / "camera.json"

    def change(**state):
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(path)

    change()
    change.settings = {"kind": KIND, "state": str(path), "image_size": 32}
    return change


def fault_of(camera, kinds=CameraFault, seconds=20.0):
    """Returns the fault that the camera reports, waiting for it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            camera.newest()
        except CameraFault as error:
            if isinstance(error, kinds):
                return error
        time.sleep(0.01)
    raise AssertionError("no fault")


def working(camera, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            return camera.newest()
        except CameraFault:
            time.sleep(0.02)
    raise AssertionError("the camera does not work again")


# the process


@pytest.fixture
def camera(device):
    found = CameraProcess("wrist", CameraOptions.of("wrist", device.settings, 128), MonotonicClock())
    yield found
    found.close()


@pytest.mark.slow
def test_camera_process_sends_new_pictures(camera):
    first = camera.newest()
    assert first.picture.shape == (32, 32, 3) and first.identity == "A1"
    time.sleep(0.3)
    second = camera.newest()
    assert second.number > first.number and first.stamp < second.stamp <= time.monotonic()
    assert not np.array_equal(first.picture, second.picture)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ({"plugged": False}, CameraFault, "does not open|gives no picture"),
        ({"frozen": True}, CameraFrozen, "the same picture"),
        ({"stamp_frozen": True}, CameraFrozen, "frozen"),
        ({"size": 128}, CameraChanged, r"\(128, 128, 3\)"),
        ({"dies": True}, CameraFault, "process of the camera 'wrist' has ended"),
    ],
)
def test_camera_process_reports_fault_and_recovers(camera, device, state, kind, words):
    device(**state)
    assert type(error := fault_of(camera, kind)) is kind
    assert re.search(words, str(error))
    before = camera.pid
    device()
    frame = working(camera)
    assert frame.picture.shape == (32, 32, 3)
    assert (camera.pid != before) == state.get("dies", False)


@pytest.mark.slow
def test_camera_process_refuses_another_device(camera, device):
    device(plugged=False)
    fault_of(camera)
    device(serial="B2")
    error = fault_of(camera, CameraChanged)
    assert "B2" in str(error) and "A1" in str(error)
    device(plugged=False, serial="B2")
    time.sleep(0.2)
    device()
    assert working(camera).identity == "A1"


@pytest.mark.slow
def test_killed_camera_process_is_replaced(camera):
    number, pid = camera.newest().number, camera.pid
    os.kill(pid, signal.SIGKILL)
    assert "has ended" in str(fault_of(camera))
    assert working(camera).number > number and camera.pid != pid


@pytest.mark.slow
def test_camera_that_is_missing_is_refused_at_start(device):
    device(plugged=False)
    with pytest.raises(CameraFault, match="does not open"):
        CameraProcess("wrist", CameraOptions.of("wrist", device.settings, 128), MonotonicClock())


# checks and settings of every kind


class Drawn:
    """Device whose pictures and times are given."""

    def __init__(self, *pictures):
        self._pictures = list(pictures)

    def read(self):
        return self._pictures.pop(0)


def noisy(scene, seed, size=(48, 64)):
    """Returns a picture with a scene of coarse squares and a sensor's noise."""
    squares = np.kron(np.random.default_rng(scene).integers(40, 200, (6, 8, 1)), np.ones((size[0] // 6, size[1] // 8, 3)))
    return np.clip(squares + np.random.default_rng(seed).normal(0, 5, squares.shape), 0, 255).astype(np.uint8)


def test_pictures_are_cropped_turned_and_scaled():
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[8:24, 32:48] = (250, 10, 20)
    picture[8:12, 32:48] = (0, 0, 250)  # the upper edge becomes the left one
    settings = CameraSettings(crop=(32, 8, 16, 16), rotate=90, image_size=8)
    served, _ = CheckedPictures(Drawn((picture, time.monotonic())), settings).read()
    assert served.shape == (8, 8, 3)
    assert served[4, 0].tolist() == [0, 0, 250] and served[4, 7].tolist() == [250, 10, 20]
    with pytest.raises(CameraChanged, match="outside"):
        CheckedPictures(Drawn((picture[:20], time.monotonic())), settings).read()


def test_repeated_picture_is_not_new():
    now = time.monotonic()
    first, second = noisy(1, 1), noisy(1, 2)
    pictures = CheckedPictures(Drawn((first, now), (first, now + 0.03), (second, now), (second, now + 0.06)), CameraSettings())
    assert [pictures.read()[1] for _ in range(2)] == [now, now + 0.06]


def test_reference_finds_swapped_moved_and_covered_cameras(tmp_path):
    path = tmp_path / "wrist.png"
    settings = CameraSettings(image_size=48, crop=(0, 0, 48, 48))
    served = [CheckedPictures(Drawn((noisy(1, seed), time.monotonic())), settings).read()[0] for seed in (1, 2)]
    cv2.imwrite(str(path), served[0][..., ::-1])
    settings = CameraSettings(image_size=48, crop=(0, 0, 48, 48), reference=path, frozen_after=0.2)
    assert correlation(*served) > 0.95
    now = time.monotonic()
    dimmed = (noisy(1, 3) * 0.6).astype(np.uint8)  # as when a lamp goes out
    CheckedPictures(Drawn((noisy(1, 4), now), (dimmed, now + 1)), settings).read()
    for other in (
        noisy(2, 5),
        np.roll(noisy(1, 5), 12, axis=1),
        np.random.default_rng(1).integers(0, 9, (48, 64, 3), np.uint8),
    ):
        passing = CheckedPictures(Drawn((noisy(1, 4), now), (other, now + 0.1), (noisy(1, 6), now + 0.4)), settings)
        for _ in range(3):
            passing.read()  # a hand that passes by
        staying = CheckedPictures(Drawn((noisy(1, 4), now), (other, now + 0.1), (other + 1, now + 0.31)), settings)
        staying.read(), staying.read()
        with pytest.raises(CameraChanged, match="reference"):
            staying.read()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"kind": "webcam"}, UnknownName, "camera"),
        ({"devise": 0}, UnknownName, "device"),
        ({"crop": [0, 0, 10, 20]}, InvalidSetting, "square"),
        ({"image_size": 4}, InvalidSetting, "8 to 960"),
        ({"rotate": 45}, InvalidSetting, "rotate"),
        ({"reference": "none.png"}, InvalidSetting, "unreadable"),
        ({"reference_region": [0, 0, 9, 9]}, InvalidSetting, "PNG"),
        ({"device": 1, "serial": "A"}, InvalidSetting, "not both"),
        ({"width": 640}, InvalidSetting, "together"),
        ({"exposure": -1}, InvalidSetting, "exposure"),
        ({"fourcc": "MJPEG"}, InvalidSetting, "four characters"),
        ({"kind": "realsense", "rate": 0}, InvalidSetting, "rate"),
    ],
)
def test_camera_settings_are_checked(given, error, words):
    with pytest.raises(error, match=words):
        CameraOptions.of("wrist", given, 128)


def test_bare_number_or_path_is_an_opencv_device():
    assert CameraOptions.of("wrist", 2, 96).device.device == 2
    options = CameraOptions.of("wrist", "/dev/video2", 96)
    assert (options.common.kind, options.common.image_size, options.device.device) == ("opencv", 96, "/dev/video2")


# opencv


@pytest.mark.real_time
def test_opencv_reads_a_film_in_rgb(tmp_path):
    film = str(tmp_path / "film.avi")
    writer = cv2.VideoWriter(film, cv2.VideoWriter_fourcc(*"MJPG"), 20, (64, 48))
    for _ in range(2):
        writer.write(np.full((48, 64, 3), (0, 0, 255), np.uint8))  # OpenCV's red
    writer.release()
    for order, red in (("bgr", 0), ("rgb", 2)):
        camera = OpenCVCamera(OpenCVOptions(device=film, colour_order=order))
        assert camera.open() == film
        picture, exposed = camera.read()
        assert picture.shape == (48, 64, 3) and picture[8, 8, red] > 200 and picture[8, 8, 1] < 50
        assert 0 <= time.monotonic() - exposed < 1
        camera.read()
        with pytest.raises(CameraFault, match="no picture"):
            camera.read()
        camera.close()
        camera.close()
    with pytest.raises(CameraFault, match="does not open"):
        OpenCVCamera(OpenCVOptions(device=str(tmp_path / "none.avi"))).open()


class Webcam:
    """cv2.VideoCapture over V4L2 of a webcam that knows two sizes and keeps the nearest one, as its driver does."""

    opened = None
    torn = 0
    """pictures that cannot be decoded from now on"""

    def __init__(self, device, back_end):
        Webcam.opened, self.calls, self._asked = self, [], {}
        self.device, self.back_end = device, back_end
        self._values = {cv2.CAP_PROP_FRAME_WIDTH: 640.0, cv2.CAP_PROP_FRAME_HEIGHT: 480.0, cv2.CAP_PROP_AUTO_EXPOSURE: 3.0}

    def isOpened(self):
        return True

    def getBackendName(self):
        return "V4L2"

    def set(self, number, value):
        self.calls.append(number)
        allowed = {cv2.CAP_PROP_FRAME_WIDTH: (640, 1280), cv2.CAP_PROP_FRAME_HEIGHT: (480, 720), cv2.CAP_PROP_FPS: (30, 60)}
        if number == cv2.CAP_PROP_EXPOSURE and self._values[cv2.CAP_PROP_AUTO_EXPOSURE] != 1.0:
            return False  # V4L2 refuses it while the exposure is automatic
        self._asked[number] = float(min(allowed.get(number, (value,)), key=lambda near: abs(near - value)))
        size = {cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT}
        if number not in size or size <= self._asked.keys():  # OpenCV waits for both
            self._values |= self._asked
        return True

    def get(self, number):
        if number == cv2.CAP_PROP_POS_MSEC:
            return 1000 * (time.monotonic() - 0.04)
        return self._values.get(number, 0.0)

    def read(self):
        is_read = Webcam.torn <= 0
        Webcam.torn -= 1
        return is_read, np.zeros((480, 640, 3), np.uint8) if is_read else None

    def release(self):
        pass


@pytest.mark.real_time
def test_opencv_sets_the_device_and_checks_it(monkeypatch):
    monkeypatch.setattr(cv2, "VideoCapture", Webcam)
    camera = OpenCVCamera(OpenCVOptions(device=2, width=1280, height=720, rate=60, exposure=150, fourcc="MJPG"))
    camera.open()
    assert (Webcam.opened.device, Webcam.opened.back_end) == (2, cv2.CAP_V4L2)
    calls = Webcam.opened.calls
    assert calls.index(cv2.CAP_PROP_FOURCC) < calls.index(cv2.CAP_PROP_FRAME_WIDTH) < calls.index(cv2.CAP_PROP_FPS)
    _, exposed = camera.read()
    assert 0.03 < time.monotonic() - exposed < 1  # the time of the exposure, not that of the arrival
    for wrong in ({"width": 1000, "height": 720}, {"rate": 40}):
        with pytest.raises(CameraFault, match=f"does not take the {next(iter(wrong))}"):
            OpenCVCamera(OpenCVOptions(**wrong)).open()


def test_opencv_skips_torn_pictures_but_not_a_lost_camera(monkeypatch):
    monkeypatch.setattr(cv2, "VideoCapture", Webcam)
    camera = OpenCVCamera(OpenCVOptions())
    camera.open()
    monkeypatch.setattr(Webcam, "torn", 2)
    assert camera.read()[0].shape == (480, 640, 3)
    Webcam.torn = 1000
    with pytest.raises(CameraFault, match="no picture"):
        camera.read()


@pytest.fixture
def sysfs(tmp_path):
    """Returns a folder like /sys/class/video4linux, with two webcams of one serial number, one of another, and none."""
    root = tmp_path / "video4linux"
    for number, (serial, index) in enumerate([("A1", 0), ("A1", 1), ("B2", 0), ("B2", 0), (None, 0)]):
        usb = tmp_path / f"usb{number}"
        interface = usb / "interface"
        interface.mkdir(parents=True)
        (usb / "idVendor").write_text("046d\n")
        (usb / "idProduct").write_text("082d\n")
        if serial:
            (usb / "serial").write_text(f"{serial}\n")
        entry = root / f"video{number}"
        entry.mkdir(parents=True)
        (entry / "index").write_text(f"{index}\n")
        (entry / "device").symlink_to(interface)
    return root


def test_serial_number_names_one_webcam(sysfs):
    assert find_serial("A1", sysfs) == "/dev/video0"  # its second node has no pictures
    for serial, count in (("B2", 2), ("C3", 0)):
        with pytest.raises(CameraFault, match=f"{count} cameras"):
            find_serial(serial, sysfs)
    assert usb_identity("/dev/video0", sysfs) == "046d 082d A1"
    assert usb_identity("/dev/video4", sysfs) == "046d 082d"
    assert usb_identity("/dev/video9", sysfs) == ""


# realsense


@pytest.fixture
def bus(monkeypatch):
    """Returns the connected devices of the stand-in for pyrealsense2."""
    monkeypatch.setitem(sys.modules, "pyrealsense2", realsense_peer)
    monkeypatch.setattr(realsense_peer, "BUS", realsense_peer.Bus())
    return realsense_peer.BUS


@pytest.mark.real_time
def test_realsense_streams_colour_of_a_serial_number(bus):
    camera = RealSenseCamera(RealSenseOptions(serial="0001", exposure=8000))
    assert camera.open() == "Intel RealSense D435 0001"
    picture, exposed = camera.read()
    assert picture.shape == (480, 640, 3) and picture[0, 0].tolist() == [200, 2, 10]
    assert 0.02 < time.monotonic() - exposed < 1
    assert bus.options == {("RGB Camera", "enable_auto_exposure"): 0.0, ("RGB Camera", "exposure"): 8000}
    bus.domain = "hardware_clock"  # of the device: says nothing about the age
    before = time.monotonic()
    assert camera.read()[1] >= before
    camera.close()
    camera.close()
    assert bus.calls == ["start", "stop"]


def test_realsense_without_colour_sensor_exposes_the_stereo_one(bus):
    RealSenseCamera(RealSenseOptions(serial="0002")).open()
    assert bus.options == {("Stereo Module", "enable_auto_exposure"): 1.0}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "2 RealSense cameras match"),
        ({"serial": "0003"}, "0 RealSense cameras match"),
        ({"serial": "0001", "width": 641}, "641 x 480"),
        ({"serial": "0001", "exposure": 1e6}, "out of range value"),
    ],
)
def test_realsense_refuses_what_the_device_cannot(bus, options, words):
    camera = RealSenseCamera(RealSenseOptions(**options))
    with pytest.raises(CameraFault, match=words):
        camera.open()
    camera.close()
    assert bus.calls.count("start") == bus.calls.count("stop")


def test_realsense_unplugged_is_a_fault_until_plugged_in(bus):
    camera = RealSenseCamera(RealSenseOptions(serial="0001"))
    camera.open()
    name = bus.devices.pop("0001")
    with pytest.raises(CameraFault, match="no picture"):
        camera.read()
    camera.close()
    with pytest.raises(CameraFault, match="0 RealSense"):
        camera.open()
    bus.devices["0001"] = name
    camera.open()
    camera.read()
    camera.close()


def test_realsense_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyrealsense2", None)
    with pytest.raises(MissingExtra, match=r"robo-rl\[realsense\]"):
        RealSenseCamera(RealSenseOptions()).open()


def test_realsense_peer_has_only_names_of_the_library():
    library = pytest.importorskip("pyrealsense2", reason="pip install pyrealsense2")
    for name, ours in vars(realsense_peer).items():
        if not isinstance(ours, type) or name in ("Bus", "SimpleNamespace"):
            continue
        theirs = getattr(library, name)
        assert not [word for word in vars(ours) if not word.startswith("_") and not hasattr(theirs, word)], name


# the arm


@pytest.fixture
def under_way(device):
    """Returns a twin served with the scripted camera, and an environment in the middle of an episode."""
    options = {"task": "robo/ArmReach-v0"}
    server = build_server(ServerSettings(options=options, cameras={"wrist": device.settings}, port=0))
    server.start()
    robot = RemoteRobot(server.url)
    environment = RobotEnv(robot, robot)
    try:
        environment.reset(seed=0)
        if any(environment.step(ALONG)[3] for _ in range(5)):
            pytest.skip(BUSY)
        yield server, environment
    finally:
        environment.close()
        server.close()


@contextmanager
def watched_plant(twin):
    """Gives a growing list of the times [s] at which the hand of a twin moves."""
    moved, done = [], threading.Event()

    def watch():
        while not done.wait(0.01):
            if np.linalg.norm(twin.read().velocity[:3]) > 0.005:
                moved.append(time.monotonic())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield moved
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"plugged": False}, "camera_lost"),
        ({"frozen": True}, "camera_frozen"),
        ({"size": 128}, "camera_changed"),
        ({"hangs": True}, "camera_stale"),
        ({"dies": True}, "camera_lost"),
    ],
)
def test_camera_fault_stops_plant_within_half_a_second(under_way, device, state, reason):
    server, environment = under_way
    robot = server.application.robot
    with watched_plant(robot.driver) as moved:
        device(**state)
        start = time.monotonic()
        while True:
            *_, truncated, info = environment.step(ALONG)
            if truncated:
                break
        told = time.monotonic() - start
        time.sleep(0.3)
    if max(environment.loop.lateness) > 0.02 or not moved:
        pytest.skip(BUSY)
    assert info["stop_reason"] == reason
    assert robot.guard.mode == "stopped" and "wrist" in robot.guard.reason
    assert told < TOLD
    assert moved[-1] - start < TOLD  # the hand itself


class Failing:
    """Camera that has failed."""

    def __init__(self, error):
        self._error = error

    def newest(self):
        raise self._error

    def close(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (CameraFault, "camera_lost"),
        (CameraFrozen, "camera_frozen"),
        (CameraChanged, "camera_changed"),
        (CameraStale, "camera_stale"),
    ],
)
def test_camera_fault_stops_plant_within_a_period(serve_in_step, beside, kind, reason):
    server = serve_in_step(task="robo/ArmReach-v0", cameras=("wrist",), image_size=16)
    environment = beside(server)
    robot, clock = server.application.robot, environment.robot.clock
    environment.reset(seed=0)
    for _ in range(3):
        assert not environment.step(ALONG)[3]
    assert np.abs(robot.driver.read().velocity[:3]).max() > 0.01
    server.application.cameras["camera_wrist"] = Failing(kind("Camera 'wrist': it fails.", got="1\n2", fix="mend it"))
    start = clock.now()
    *_, truncated, info = environment.step(ALONG)
    assert truncated and info["stop_reason"] == reason
    assert clock.now() - start < environment.loop.period + 1e-6
    assert robot.guard.mode == "stopped" and "Camera 'wrist': it fails." in robot.guard.reason
    clock.sleep(0.15)
    here = robot.driver.read().position
    clock.sleep(0.5)
    np.testing.assert_allclose(robot.driver.read().position, here, atol=1e-4)
    environment.close()


@pytest.mark.slow
def test_arm_goes_on_after_camera_is_back_and_person_looked(under_way, device):
    server, environment = under_way
    device(plugged=False)
    while not (ended := environment.step(ALONG))[3]:
        pass
    if ended[4]["stop_reason"] != "camera_lost":
        pytest.skip(BUSY)
    with pytest.raises(RobotStopped):
        environment.reset(seed=1)
    device()
    working(server.application.cameras["camera_wrist"])
    environment.robot.rearm("test")
    environment.reset(seed=1)
    assert not environment.step(ALONG)[3]
    events = [event for event in server.application.robot.log.recent if event["event"] == "camera_fault"]
    assert events and events[0]["camera"] == "wrist"


@pytest.mark.slow
def test_cameras_of_two_sizes_beside_fake_arm(device):
    cameras = {"wrist": device.settings, "front": device.settings | {"image_size": 24, "scene": 2}}
    fake = build_server(ServerSettings(driver="fake", cameras=cameras, port=0))
    fake.start()
    robot = RemoteRobot(fake.url)
    seen = {name: robot.frame(name).picture for name in robot.cameras}
    assert {name: picture.shape for name, picture in seen.items()} == {
        "camera_wrist": (32, 32, 3),
        "camera_front": (24, 24, 3),
    }
    assert robot.spec.observation["camera_front"].shape == (24, 24, 3)
    robot.close()
    fake.close()
