"""A LeRobot robot in a process of its own is driven like any arm, and its failures make it hold."""

import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from lerobot_bench import DEVICES, LEROBOT, STAND_IN, journal, servo_arm

from factories import rest_slow
from robo_real.arm import ArmTarget
from robo_real.bridged.lerobot_process import LeRobotFile, lerobot_process
from robo_real.drivers.lerobot import LeRobotArm, LeRobotOptions
from robo_real.guard import LATCHED
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.rotations import between
from robo_real.serving import ServerSettings, build_server
from robo_real.teleoperation.leader_arm import LeaderArm, LeaderArmOptions
from robo_rl.errors import InvalidSetting, RobotStopped, RobotUnavailable, TeleoperatorUnavailable, UnknownName
from robo_rl.kinematics import Kinematics
from robo_rl.settings import plain

NAMES = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"]
PATH = [str(DEVICES), str(STAND_IN)]
LOW, HIGH = (-1.9, -1.75, -2.6, -2.1, -3.0), (1.9, 1.75, 2.6, 2.1, 3.0)
LIMITS = replace(TWIN, joint_low=LOW, joint_high=HIGH, joint_speed=(2.0,) * 5, stop_after=0.5)
LIMITS = replace(LIMITS, state_age=0.6, command_age=0.6)  # for a busy machine


@pytest.fixture(params=["stand-in", pytest.param("lerobot", marks=pytest.mark.slow)])
def python(request):
    """Interpreter of the device: ours with a stand-in of LeRobot's classes, or one with LeRobot."""
    if request.param == "lerobot" and LEROBOT is None:
        pytest.skip("ROBO_RL_PEERS_PYTHON names no interpreter with lerobot: docs/data/dataset-formats.md makes one")
    return LEROBOT if request.param == "lerobot" else None


@pytest.fixture
def opened():
    """Returns a function that connects a robot, which is closed after the test."""
    found = []

    def connect(robot):
        found.append(robot)
        robot.connect()
        return robot

    yield connect
    for robot in found:
        robot.close()


def arm(tmp_path, python=None, **settings) -> LeRobotArm:
    return LeRobotArm(LeRobotOptions(**servo_arm(tmp_path, python=python, **settings)))


def file_of(path) -> LeRobotFile:
    return LeRobotFile(model="", hand="", joints={}, rate=100, modules=("servo_arm",), path=tuple(path))


def drive(robot, action, steps):
    """Streams an action; returns the reasons of the guard."""
    found = []
    for _ in range(steps):
        robot.observe()
        found += robot.apply(action).reasons
        robot.clock.sleep(0.05)
    return found


@pytest.mark.slow
def test_guard_drives_the_motors(tmp_path, opened, python):
    robot = opened(GuardedArm(arm(tmp_path, python), LIMITS))
    start = robot.measure()
    assert start.position == pytest.approx([0.596, 0, 0.053], abs=0.01)
    robot.arm()
    action = robot.spec.action.to_normalized([0.01, 0.004, 0.01, 0.0, 0.02])
    while np.linalg.norm(robot.measure().position - start.position) < 0.04 and robot.clock.now() - start.stamp < 10:
        drive(robot, action, 1)
    robot.pause()
    robot.clock.sleep(0.4)
    found = robot.measure()
    moved = found.position - start.position
    assert moved[0] > 0.02 and moved[2] > 0.02 and moved[0] == pytest.approx(moved[2], abs=0.01)
    assert found.opening == pytest.approx(0.02, abs=0.004)
    assert np.linalg.norm(between(found.quaternion, start.quaternion)) < 0.02
    sent = [event for event in journal(tmp_path) if event["event"] == "sent"]
    places = np.array([[event[motor] for motor in ("pan", "lift", "elbow", "flex", "roll")] for event in sent])
    assert np.abs(np.diff(np.radians(places), axis=0)).max() < 0.15  # a stream of near set points
    robot.close()
    assert journal(tmp_path)[-1]["event"] == "disconnected"


@pytest.mark.slow
def test_guard_keeps_the_box(tmp_path, opened):
    limits = replace(LIMITS, box_low=(0.28, -0.3, 0.04))
    robot = opened(GuardedArm(arm(tmp_path), limits))
    robot.arm()
    reasons = drive(robot, robot.spec.action.to_normalized([0, 0, -0.015, 0, 0.05]), 16)
    assert "box" in reasons
    model = Kinematics(DEVICES / "servo_arm.xml", NAMES, "grip")
    sent = [event for event in journal(tmp_path) if event["event"] == "sent"]
    lowest = min(model.hand(np.radians([event[m] for m in ("pan", "lift", "elbow", "flex", "roll")]))[0][2] for event in sent)
    assert 0.038 < lowest < 0.045  # what the motors were sent


@pytest.mark.parametrize("way", rest_slow(["kill", "die", "hang", "bus"]))
@pytest.mark.real_time
def test_lost_process_holds_the_arm(tmp_path, opened, way):
    fault = {} if way == "kill" else {"robot": {"fault": way, "after": 0.5}}
    robot = opened(GuardedArm(arm(tmp_path, **fault), LIMITS))
    robot.arm()
    action = robot.spec.action.to_normalized([0.005, 0, 0.005, 0, 0.05])
    began = time.monotonic()
    if way == "kill":
        drive(robot, action, 10)
        os.kill(robot.driver._process._process.pid, signal.SIGKILL)
    with pytest.raises((RobotUnavailable, RobotStopped)) as caught:
        drive(robot, action, 60)
    lost = time.monotonic()
    assert lost - began < 2.5
    if isinstance(caught.value, RobotUnavailable):
        assert "LeRobot robot 'servo_arm' is" in str(caught.value)
    robot.clock.sleep(1.0)
    assert robot.guard.mode in LATCHED
    sent = [event["at"] for event in journal(tmp_path) if event["event"] == "sent"]
    assert sent[-1] < lost + 0.2  # no motor was sent anything any more


@pytest.mark.slow
def test_nan_of_a_motor_stops_the_arm(tmp_path, opened):
    robot = opened(GuardedArm(arm(tmp_path, robot={"fault": "nan", "after": 0.4}), LIMITS))
    robot.arm()
    with pytest.raises((RobotStopped, RobotUnavailable), match=r"finite|state_not_finite"):
        drive(robot, robot.spec.action.to_normalized([0.003, 0, 0, 0, 0.05]), 40)
    robot.clock.sleep(0.1)  # the thread that watches the arm
    assert robot.guard.reason == "state_not_finite"
    assert all(math.isfinite(event.get("lift", 0)) for event in journal(tmp_path))


@pytest.mark.slow
def test_recover_starts_a_dead_process_again(tmp_path, opened):
    driver = opened(arm(tmp_path))
    os.kill(driver._process._process.pid, signal.SIGKILL)
    time.sleep(0.2)
    with pytest.raises(RobotUnavailable, match=r"is lost(.|\n)*signal 9"):
        driver.read()
    driver.recover()
    assert driver.read().is_finite


@pytest.mark.real_time
def test_killed_owner_leaves_the_arm_at_its_place(tmp_path):
    process = lerobot_process(sys.executable, "robot", servo_config(tmp_path), file_of(PATH))
    process.start()
    process.send({"pan.pos": 40.0})
    time.sleep(0.06)
    child = process._process
    child._messages.end()  # as the system does for a process that was killed
    assert child.wait(3) == 0
    sent, end = journal(tmp_path)[-2:]
    assert end["event"] == "disconnected" and sent["event"] == "sent" and 5 < sent["pan"] < 39.9
    process.close()


def servo_config(tmp_path) -> dict:
    return {"type": "servo_arm", "journal": str(tmp_path / "journal.jsonl")}


def test_pictures_pass_with_their_stamps(tmp_path, opened):
    driver = opened(arm(tmp_path, robot={"camera": True}, cameras={"front": [48, 64]}))
    assert driver.cameras == ("camera_front",) and driver.spec.observation["camera_front"].shape == (48, 64, 3)
    first = driver.newest("camera_front")
    time.sleep(0.1)
    second = driver.newest("camera_front")
    assert first.picture.shape == (48, 64, 3) and first.picture[0, 0, [0, 2]].tolist() == [200, 7]
    assert second.number > first.number and driver.clock.now() - second.stamp < 0.1


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"robot": {"fault": "connect"}}, RobotUnavailable, r"does not connect(.|\n)*no motor answers"),
        ({"robot": {"calibrated": False}}, RobotUnavailable, r"not calibrated; run lerobot-calibrate"),
        ({"robot": {"type": "so1"}}, RobotUnavailable, r"unknown type 'so1'; known: servo_arm"),
        ({"robot": {"prt": 1}}, RobotUnavailable, r"`prt` are not valid"),
        ({"cameras": {"front": [480, 640]}, "robot": {"camera": True}}, InvalidSetting, r"another size(.|\n)*48, 64"),
        ({"cameras": {"top": [48, 64]}, "robot": {"camera": True}}, UnknownName, r"'top'(.|\n)*front"),
        ({"gripper": {"feature": "grip.pos", "closed": 0, "open": 1, "width": 0.1}}, UnknownName, r"grip\.pos"),
        ({"gripper": None}, InvalidSetting, r"does not map(.|\n)*gripper\.pos"),
    ],
)
def test_mapping_that_does_not_fit_is_refused(tmp_path, settings, error, text):
    driver = arm(tmp_path, **settings)
    with pytest.raises(error, match=text):
        driver.connect()
    with pytest.raises(RobotUnavailable):
        driver.read()
    assert not driver._process.is_started


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"hand": "grp"}, UnknownName, r"'grp'(.|\n)*grip"),
        ({"joints": {"elbow": {"feature": "elbow.pos"}}}, UnknownName, r"'elbow'(.|\n)*elbow_flex"),
        ({"joints": {"elbow_flex": {"feature": "elbow.pos", "scale": 0}}}, InvalidSetting, "scale not 0"),
        ({"joints": {"elbow_flex": {"featur": "elbow.pos"}}}, UnknownName, r"featur(.|\n)*feature"),
        ({"model": "absent.xml"}, InvalidSetting, "cannot be loaded"),
        ({"rate": 1}, InvalidSetting, "10 to 1000"),
    ],
)
def test_config_errors_name_the_key(tmp_path, settings, error, text):
    with pytest.raises(error, match=text):
        arm(tmp_path, **settings)


def test_missing_config_and_interpreter_are_clear(tmp_path):
    with pytest.raises(InvalidSetting, match=r"--driver\.settings\.config FILE"):
        LeRobotArm()
    options = servo_arm(tmp_path) | {"python": str(tmp_path / "python")}
    with pytest.raises(RobotUnavailable, match=r"does not start(.|\n)*can .*python import lerobot"):
        LeRobotArm(LeRobotOptions(**options)).connect()
    options = servo_arm(tmp_path, path=[str(DEVICES)])
    with pytest.raises(RobotUnavailable, match=r"No module named '(draccus|lerobot)'"):
        LeRobotArm(LeRobotOptions(**options)).connect()


@pytest.mark.parametrize("as_vector", [False, True])
def test_leader_arm_is_read_and_feels(as_vector, python):
    config = {"type": "leader_arm", "places": {"pan": 12.5}, "as_vector": as_vector}
    path = [str(DEVICES), *([] if python else [str(STAND_IN)])]
    process = lerobot_process(python or sys.executable, "teleoperator", config, file_of(path))
    process.start()
    try:
        assert process.newest(0.5).values["pan.pos"] == 12.5 and process.commands == ("force",)
        process.send({"force": 3.0})
        time.sleep(0.2)
        assert process.newest(0.5).values["gripper.pos"] == 3.0
    finally:
        process.close()
    with pytest.raises(RobotUnavailable):
        process.newest(0.5)


@pytest.mark.real_time
def test_leader_hand_is_followed_at_its_speed(tmp_path):
    teleoperator = {"type": "leader_arm", "slide": [time.monotonic(), 0.05, 0.0]}
    device = LeaderArm(LeaderArmOptions(**servo_arm(tmp_path, teleoperator=teleoperator, rate=100)))
    assert device.connect() == "leader arm leader_arm"
    try:
        speeds = [device.read().axes.get("x", 0.0) for _ in range(30)]
        assert np.median(speeds[10:]) == pytest.approx(0.05 / 0.25, rel=0.1)  # of full deflection, 0.25 m/s
    finally:
        device.close()


def test_leader_arm_errors_are_clear(tmp_path):
    with pytest.raises(InvalidSetting, match=r"--teleoperator\.settings\.config FILE"):
        LeaderArm().connect()
    with pytest.raises(InvalidSetting, match=r"0\.05 to 5"):
        LeaderArmOptions(ratio=0.0)
    options = servo_arm(tmp_path, teleoperator={"type": "leader_arm", "places_file": "/absent"})
    with pytest.raises(TeleoperatorUnavailable, match=r"cannot be opened(.|\n)*/absent"):
        LeaderArm(LeaderArmOptions(**options)).connect()


@pytest.mark.parametrize("goal", [[0.02, 0.0, 0.05], [-0.1, 0.15, 0.1], [0.0, -0.2, 0.02]])
def test_kinematics_reach_a_pose(goal):
    model = Kinematics(DEVICES / "servo_arm.xml", NAMES, "grip")
    start = np.radians([0, -35, 75, 50, 0])
    position, direction, jacobian = model.hand(start)
    found = model.joints(position + goal, direction, start)
    there, turned_to, _ = model.hand(found)
    assert there == pytest.approx(position + goal, abs=1e-3)
    assert np.linalg.norm(between(direction, turned_to)) < 0.02
    small = 1e-6 * np.arange(1, 6)
    assert model.hand(start + small)[0] - position == pytest.approx(jacobian[:3] @ small, abs=1e-9)


@pytest.mark.slow
def test_gripper_stays_closed_in_a_hold(tmp_path, opened):
    driver = opened(arm(tmp_path))
    state = driver.read()
    driver.move(ArmTarget(state.position, state.quaternion, 0.01))
    driver.clock.sleep(0.06)
    driver.hold()
    driver.clock.sleep(0.3)
    assert driver.read().opening == pytest.approx(0.01, abs=0.002)


@pytest.mark.slow
def test_a_served_robot_is_driven_with_its_pictures(tmp_path):
    limits = tmp_path / "limits.yaml"
    limits.write_text(yaml.safe_dump(plain(LIMITS)))
    options = servo_arm(tmp_path, robot={"camera": True}, cameras={"front": [48, 64]})
    server = build_server(ServerSettings(driver="lerobot", options=options, limits=limits, port=0))
    server.start()
    try:
        robot = RemoteRobot(server.url)
        robot.connect()
        robot.arm()
        start = robot.observe()
        for _ in range(10):
            robot.observe()
            assert robot.apply(robot.spec.action.to_normalized([0.0, 0.0, 0.01, 0.0, 0.04])).reasons == ()
            time.sleep(0.05)
        found = robot.observe()
        assert found["camera_front"].shape == (48, 64, 3) and found["camera_front"][0, 0, 0] == 200
        assert found["end_effector_position"][2] - start["end_effector_position"][2] > 0.04
        robot.close()
    finally:
        server.close()
    assert journal(tmp_path)[-1]["event"] == "disconnected"


@pytest.mark.slow
def test_mock_robot_of_lerobot_that_never_moves_is_stopped(tmp_path, opened):
    checkout = os.environ.get("ROBO_RL_LEROBOT_CHECKOUT")
    if LEROBOT is None or checkout is None:
        pytest.skip("ROBO_RL_LEROBOT_CHECKOUT names no source of lerobot, which has its mock robot in tests/mocks")
    motors = dict(zip(NAMES, (f"motor_{number}.pos" for number in range(1, 6)), strict=True))
    settings = {
        "robot": {"type": "mock_robot", "n_motors": 5, "random_values": False, "static_values": [0.0, -35.0, 75.0, 50.0, 0.0]},
        "joints": {joint: {"feature": motor} for joint, motor in motors.items()},
        "gripper": None,
        "modules": ["tests.mocks.mock_robot"],
        "path": [checkout],
    }
    options = servo_arm(tmp_path, python=LEROBOT) | {"config": tmp_path / "mock.yaml"}
    options["config"].write_text(yaml.safe_dump(yaml.safe_load((tmp_path / "arm.yaml").read_text()) | settings))
    robot = opened(GuardedArm(LeRobotArm(LeRobotOptions(**options)), LIMITS))
    robot.arm()
    with pytest.raises(RobotStopped, match="state_frozen"):
        drive(robot, robot.spec.action.to_normalized([0.01, 0, 0.01, 0, 0.0]), 60)
