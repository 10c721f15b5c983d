"""An arm behind ROS 2 is driven like any arm; topics that fall silent, flood or lie make it hold."""

import importlib.util
import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from ros2_bench import JOINTS, MODEL, Bench

from factories import rest_slow
from robo_real.arm import ArmTarget
from robo_real.arm_spec import hold_action
from robo_real.drivers.ros2 import DEVICE, ROS2Arm, ROS2Options
from robo_real.guard import LATCHED
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.serving import ServerSettings, build_server
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RobotStopped, RobotUnavailable, UnknownName
from robo_rl.kinematics import Kinematics
from robo_rl.settings import plain

LOW, HIGH = (-1.9, -1.75, -2.6, -2.1, -3.0), (1.9, 1.75, 2.6, 2.1, 3.0)
LIMITS = replace(TWIN, joint_low=LOW, joint_high=HIGH, joint_speed=(2.0,) * 5, stop_after=0.5)
LIMITS = replace(LIMITS, state_age=0.6, command_age=0.6)  # for a busy machine


@pytest.fixture
def bench(tmp_path):
    found = Bench(tmp_path)
    yield found
    found.close()


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


def arm(bench, **changes) -> ROS2Arm:
    return ROS2Arm(ROS2Options(**bench.options(**changes)))


def drive(robot, action, steps):
    """Streams an action; returns the reasons of the guard."""
    found = []
    for _ in range(steps):
        robot.observe()
        found += robot.apply(action).reasons
        robot.clock.sleep(0.05)
    return found


@pytest.mark.parametrize("kind", rest_slow(["JointTrajectory", "Float64MultiArray"]))
@pytest.mark.real_time
def test_guard_drives_the_joints(bench, opened, kind):
    is_array = kind == "Float64MultiArray"
    bench.start(array=is_array)
    commands = {"topic": "/arm/commands" if is_array else "/arm/joint_trajectory", "type": kind}
    robot = opened(GuardedArm(arm(bench, commands=commands), LIMITS))
    start = robot.measure()
    assert start.joint_position == pytest.approx([0, -0.6109, 1.309, 0.8727, 0], abs=1e-3), "sorted by name"
    robot.arm()
    drive(robot, robot.spec.action.to_normalized([0.005, 0.0, 0.005, 0.0, 0.02]), 12)
    robot.pause()
    robot.clock.sleep(0.3)
    found = robot.measure()
    moved = found.position - start.position
    assert moved[0] > 0.02 and moved[2] > 0.02 and found.opening == pytest.approx(0.02, abs=0.004)
    sent = [event for event in bench.journal() if event["event"] == "sent"]
    places = np.array([[event[joint] for joint in JOINTS] for event in sent])
    assert np.abs(np.diff(places, axis=0)).max() < 0.15, "a stream of near set points"
    gripped = [event for event in bench.journal() if event["event"] == "gripped"]
    assert gripped[-1]["effort"] == 20.0 and len(gripped) <= 30, "a goal for each change, not for each set point"


def test_gripper_in_the_same_trajectory(bench, opened):
    bench.start()
    driver = opened(arm(bench, gripper_commands=None))
    state = driver.read()
    driver.move(ArmTarget(state.position, state.quaternion, 0.03))
    assert bench.wait_for("sent")["finger"] == pytest.approx(0.03)


@pytest.mark.parametrize("fault", rest_slow(["stale", "die", "fewer"]))
@pytest.mark.real_time
def test_silent_joint_states_hold_the_arm(bench, opened, fault):
    bench.start(fault=fault, after=1.5)
    robot = opened(GuardedArm(arm(bench), LIMITS))
    robot.arm()
    action = robot.spec.action.to_normalized([0.003, 0, 0.003, 0, 0.05])
    with pytest.raises((RobotUnavailable, RobotStopped)):
        drive(robot, action, 100)
    lost = time.monotonic()
    robot.clock.sleep(1.0)
    assert robot.guard.mode in LATCHED
    sent = [event["at"] for event in bench.journal() if event["event"] == "sent"]
    assert sent and sent[-1] < lost + 0.2, "nothing is sent any more"


@pytest.mark.slow
def test_stale_state_is_refused_before_it_is_lost(bench, opened):
    """Between the limit of the guard and the loss of the arm, commands are refused and the arm holds."""
    bench.start(fault="stale", after=1.2)
    robot = opened(GuardedArm(arm(bench), replace(LIMITS, state_age=0.15, command_age=0.6, late_in_a_row=50)))
    robot.arm()
    action, reasons = robot.spec.action.to_normalized([0.003, 0, 0.003, 0, 0.05]), []
    with pytest.raises((RobotUnavailable, RobotStopped)):
        for _ in range(100):
            reasons += drive(robot, action, 1)
    assert "state_late" in reasons


@pytest.mark.slow
@pytest.mark.real_time
def test_killed_bridge_stops_and_rearming_starts_it_again(bench, opened):
    bench.start()
    robot = opened(GuardedArm(arm(bench), LIMITS))
    robot.arm()
    os.kill(robot.driver._process._process.pid, signal.SIGKILL)
    with pytest.raises((RobotUnavailable, RobotStopped)):
        drive(robot, robot.spec.action.to_normalized([0.003, 0, 0, 0, 0.05]), 60)
    robot.clock.sleep(1.0)  # until the watchdog has stopped it, too
    robot.rearm()
    robot.arm()
    assert robot.measure().is_finite


def test_nan_joint_stops_the_arm(bench, opened):
    bench.start(fault="nan", after=1.2)
    robot = opened(GuardedArm(arm(bench), LIMITS))
    robot.arm()
    with pytest.raises((RobotStopped, RobotUnavailable), match=r"finite|state_not_finite"):
        drive(robot, robot.spec.action.to_normalized([0.003, 0, 0, 0, 0.05]), 100)
    robot.clock.sleep(0.1)  # the thread that watches the arm
    assert robot.guard.reason == "state_not_finite"
    assert all(math.isfinite(event.get("shoulder_lift", 0)) for event in bench.journal())


def test_bridge_refuses_a_command_that_is_not_finite():
    """After the guard, and before anything is published."""
    with pytest.raises(ValueError, match="not finite"):
        ros2_device().ROS2Device.drive(None, {"elbow": math.nan})


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"encoding": "16UC1"}, "16UC1"), ({"data": b"1"}, "1 bytes"), ({"step": 3}, "rows of 3"), ({"height": 9}, "9 rows")],
)
def test_bridge_refuses_hostile_pictures(changes, words):
    picture = SimpleNamespace(**{"encoding": "rgb8", "height": 2, "width": 2, "step": 6, "data": bytes(12)} | changes)
    with pytest.raises(ValueError, match=words):
        ros2_device()._picture(picture)


def ros2_device():
    """Returns the module that runs in the interpreter of ROS 2."""
    spec = importlib.util.spec_from_file_location("ros2_device", DEVICE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_flood_of_messages_leaves_the_newest(bench, opened):
    bench.start(fault="flood", after=0.3, rate=200.0)  # 10,000 a second
    driver = opened(arm(bench))
    time.sleep(0.8)
    state = driver.read()
    driver.move(ArmTarget(state.position + np.array([0, 0, 0.02]), state.quaternion, None))
    end = time.monotonic() + 3.0
    while driver.read().position[2] < state.position[2] + 0.015 and time.monotonic() < end:
        time.sleep(0.02)
    assert driver.read().position[2] > state.position[2] + 0.015
    assert driver.clock.now() - driver.read().stamp < 0.3, "no queue makes the newest one old"


@pytest.mark.slow
def test_pictures_pass_in_rgb(bench, opened):
    bench.start(camera=True)
    driver = opened(arm(bench, cameras={"front": {"topic": "/camera/image_raw", "size": [48, 64]}}))
    assert driver.cameras == ("camera_front",) and driver.spec.observation["camera_front"].shape == (48, 64, 3)
    first = driver.newest("camera_front")
    time.sleep(0.3)
    second = driver.newest("camera_front")
    assert first.picture.shape == (48, 64, 3) and first.picture[0, 0, [0, 2]].tolist() == [200, 7]
    assert second.number > first.number and driver.clock.now() - second.stamp < 0.3


def test_ended_owner_leaves_the_arm_at_its_place(bench):
    bench.start()
    driver = arm(bench)
    driver.connect()
    state = driver.read()
    driver.move(ArmTarget(state.position + np.array([0, 0, 0.08]), state.quaternion, None))
    time.sleep(0.05)
    driver._process._process._messages.end()  # as the system does for a process that was killed
    assert driver._process._process.wait(3) == 0
    time.sleep(0.1)
    goal, place = [[event[joint] for joint in JOINTS] for event in bench.journal() if event["event"] == "sent"][-2:]
    assert np.abs(np.subtract(goal, place)).max() > 0.01
    driver.close()


@pytest.mark.parametrize(
    ("changes", "node", "text"),
    [
        ({"joints": {"shoulder_pan": {"feature": "waist"}}}, {}, r"/joint_states has no joint 'waist'; it has caster_left"),
        ({"commands": {"topic": "/other"}}, {}, r"nobody listens to /other: is the controller active\?"),
        ({"cameras": {"front": {"topic": "/front", "size": [48, 64]}}}, {}, "no picture on /front"),
        ({}, {"fault": "fewer", "after": 0.0}, "fewer positions than names"),
        ({"states": "/elsewhere"}, {}, r"no joint position on /elsewhere: does the robot's driver run"),
    ],
)
@pytest.mark.slow
def test_what_is_missing_is_named(bench, changes, node, text):
    bench.start(**node)
    driver = arm(bench, **changes)
    with pytest.raises(RobotUnavailable, match=text):
        driver.connect()
    assert not driver._process.is_started


def test_pictures_of_another_size_are_refused(bench):
    bench.start(camera=True)
    driver = arm(bench, cameras={"front": {"topic": "/camera/image_raw", "size": [480, 640]}})
    with pytest.raises(InvalidSetting, match=r"another size(.|\n)*48, 64"):
        driver.connect()


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"hand": "grp"}, UnknownName, r"'grp'(.|\n)*grip"),
        ({"joints": ["elbow"]}, UnknownName, r"'elbow'(.|\n)*elbow_flex"),
        ({"commands": {"topic": "/a", "type": "Twist"}}, InvalidSetting, r"type(.|\n)*JointTrajectory"),
        ({"commands": {"topc": "/a"}}, UnknownName, r"topc(.|\n)*topic"),
        ({"gripper_commands": {}}, InvalidSetting, "an action or a topic"),
        ({"gripper": None}, InvalidSetting, "and no gripper"),
        ({"cameras": {"front": {"topic": "/a"}}}, InvalidSetting, "size"),
        ({"ahead": 0}, InvalidSetting, "ahead is out of range"),
    ],
)
def test_config_errors_name_the_key(bench, changes, error, text):
    with pytest.raises(error, match=text):
        arm(bench, **changes)


def test_missing_config_setup_and_rclpy_are_clear(bench):
    with pytest.raises(InvalidSetting, match=r"--driver\.settings\.config FILE"):
        ROS2Arm()
    with pytest.raises(RobotUnavailable, match=r"does not connect(.|\n)*absent\.bash"):
        arm(bench, setup="absent.bash").connect()
    with pytest.raises(RobotUnavailable, match=r"No module named 'rclpy'(.|\n)*can .* import rclpy"):
        arm(bench, setup=[]).connect()


@pytest.mark.slow
def test_a_served_arm_is_driven_with_its_pictures(bench, tmp_path):
    bench.start(camera=True)
    limits = tmp_path / "limits.yaml"
    limits.write_text(yaml.safe_dump(plain(LIMITS)))
    options = bench.options(cameras={"front": {"topic": "/camera/image_raw", "size": [48, 64]}})
    server = build_server(ServerSettings(driver="ros2", options=options, limits=limits, port=0))
    server.start()
    try:
        robot = RemoteRobot(server.url)
        robot.connect()
        robot.arm()
        start = robot.observe()
        for _ in range(8):
            robot.observe()
            assert robot.apply(robot.spec.action.to_normalized([0.0, 0.0, 0.01, 0.0, 0.04])).reasons == ()
            time.sleep(0.05)
        found = robot.observe()
        assert found["camera_front"].shape == (48, 64, 3) and found["camera_front"][0, 0, 0] == 200
        assert found["end_effector_position"][2] - start["end_effector_position"][2] > 0.03
        robot.close()
        environment = make_environment(f"robot:{server.url}?max_steps=5&reset_time=1.5")
        for seed in range(2):  # a real scene is reset by hand: episodes begin where the arm is
            before = time.monotonic()
            environment.reset(seed=seed)
            assert seed == 0 or time.monotonic() - before > 1.5, "time for a person between two episodes"
            hold = hold_action(robot.spec.action, found)
            steps = [environment.step(hold) for _ in range(5)]
            assert steps[-1][3] and steps[-1][4]["stop_reason"] == "time_limit"
        environment.close()
    finally:
        server.close()


@pytest.mark.slow
def test_guard_keeps_the_box(bench, opened):
    bench.start()
    robot = opened(GuardedArm(arm(bench), replace(LIMITS, box_low=(0.28, -0.3, 0.04))))
    robot.arm()
    assert "box" in drive(robot, robot.spec.action.to_normalized([0, 0, -0.015, 0, 0.05]), 12)
    model = Kinematics(MODEL, JOINTS, "grip")
    sent = [event for event in bench.journal() if event["event"] == "sent"]
    lowest = min(model.hand(np.array([event[joint] for joint in JOINTS]))[0][2] for event in sent)
    assert 0.038 < lowest < 0.045, "what the joints were sent"
