"""Limits proposed from driven positions, and the wizard that writes them."""

import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_cli.main import dispatch
from robo_real.arm import ArmTarget
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.guard import Guard
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN, careful_limits, limits_from
from robo_real.remote_robot import RemoteRobot
from robo_real.rotations import DOWN, from_tilt_and_turn
from robo_real.workspace import HandPose, Margins, propose_limits, write_limits
from robo_rl.errors import InvalidSetting

JOINTS = np.array([0.0, -0.3, 0.0, -2.3, 0.0, 2.0, 0.78])


def driven(count=200, *, low=(0.4, -0.15, 0.03), high=(0.6, 0.1, 0.3), tilt=0.1, turn=0.5):
    """Poses through a box, corner to corner."""
    phase = np.linspace(0, 6 * np.pi, count)
    waves = np.stack([np.sin(phase), np.sin(2 * phase + 1), np.cos(3 * phase)], 1)
    waves = (waves - waves.min(0)) / np.ptp(waves, axis=0)
    place = np.asarray(low) + waves * (np.asarray(high) - low)
    return [
        HandPose(0.05 * i, p, from_tilt_and_turn((tilt * w[0], 0, 0), turn * (2 * w[1] - 1), DOWN), JOINTS + 0.2 * w[2])
        for i, (p, w) in enumerate(zip(place, waves, strict=True))
    ]


def test_box_and_angles_have_their_margins():
    found = propose_limits(driven(), careful_limits(7), Margins(sides=0.02, floor=0.0, angle=0.1, joints=0.3))
    np.testing.assert_allclose(found.box_low, [0.38, -0.17, 0.03], atol=0.0011)
    np.testing.assert_allclose(found.box_high, [0.62, 0.12, 0.32], atol=0.0011)
    assert found.box_low[2] >= 0.03 and found.box_low[0] <= 0.38  # not below the table; whole margins at the sides
    assert (found.tilt, found.turn) == pytest.approx((0.2, 0.6), abs=0.01)
    np.testing.assert_allclose(found.joint_low, JOINTS - 0.3, atol=0.01)
    np.testing.assert_allclose(found.joint_high, JOINTS + 0.5, atol=0.01)
    assert (found.speed, found.soft_force, found.dead_man) == (0.1, 15.0, 0.3)


def test_every_driven_pose_is_inside_as_the_guard_sees_it():
    poses = driven()
    found = propose_limits(poses, TWIN)
    arm = FakeArm(clock=ManualClock())
    robot = GuardedArm(arm, found)
    guard: Guard = robot.guard
    for pose in poses:
        target = ArmTarget(np.clip(pose.position, *guard.box), pose.quaternion, 0.0)
        assert np.abs(target.position - pose.position).max() < 0.0011 and guard.cone.contains(pose.quaternion)


def test_joint_limits_of_the_base_stay_the_outermost():
    poses = [replace(pose, joints=pose.joints + np.array([0, 0, 0, 0, 0, 1.45, 0])) for pose in driven()]
    found = propose_limits(poses, TWIN)
    assert found.joint_high[5] == TWIN.joint_high[5]
    with pytest.raises(InvalidSetting, match="beyond the limits of the base"):
        propose_limits([replace(pose, joints=pose.joints + 2.0) for pose in driven()], TWIN)


def test_speed_scales_all_rates():
    found = propose_limits(driven(), careful_limits(7), speed=0.2)
    assert (found.speed, found.acceleration, found.jerk, found.turn_speed) == (0.2, 2.0, 100.0, 1.0)
    for speed in (0.0, -1.0, 2.0, float("nan")):
        with pytest.raises(InvalidSetting, match="speed of the hand"):
            propose_limits(driven(), careful_limits(7), speed=speed)


def test_file_is_read_back_as_it_was_proposed(tmp_path):
    found = propose_limits(driven(), careful_limits(7))
    path = tmp_path / "lab.yaml"
    path.write_text(write_limits(found, ["look at it"]))
    assert limits_from(path) == found and path.read_text().startswith("# look at it\n")


def at(index, **changes):
    poses = driven()
    poses[index] = replace(poses[index], **changes)
    return poses


@pytest.mark.parametrize(
    ("poses", "said"),
    [
        (driven(11), "Too few positions"),
        (driven(high=(0.41, 0.0, 0.04)), "hardly moved"),
        (driven(high=(0.6, -0.149, 0.031)), "hardly moved"),
        (driven(1000, low=(0.3, -1.0, 0.0), high=(0.6, 1.0, 0.3)), "too far apart"),
        (driven(low=(-0.2, -0.2, 0.0), high=(0.3, 0.2, 0.3)), "contains the robot's own base"),
        (driven(tilt=1.0), "leaned too far"),
        (at(50, position=np.array([0.4, np.nan, 0.1])), "pose 51 of 200"),
        (at(50, joints=np.full(7, np.inf)), "not finite"),
        (at(50, position=np.array([0.6, 0.9, 0.3])), "jumped"),
        ([replace(pose, joints=pose.joints[:6]) for pose in driven()], "another number of joints"),
    ],
)
def test_absurd_drives_are_refused(poses, said):
    with pytest.raises(InvalidSetting, match=said):
        propose_limits(poses, careful_limits(7))


@pytest.mark.parametrize("margin", [{"sides": -0.01}, {"sides": 0.5}, {"floor": 0.2}, {"joints": 3.0}, {"angle": float("nan")}])
def test_absurd_margins_are_refused(margin):
    with pytest.raises(InvalidSetting, match="out of range"):
        Margins(**margin)


@pytest.fixture
def driving():
    """Returns a function that drives a served robot's hand in circles, as a person at the console does, until the test ends."""
    done, threads = threading.Event(), []

    def circle(robot):
        robot.arm()
        number = 0
        while not done.is_set():
            with suppress(Exception):
                robot.observe()
                angle = 2 * np.pi * number / 60
                robot.apply([np.cos(angle), np.sin(angle), 0.6 * np.sin(angle / 2), 0.3 * np.cos(angle), 1])
                number += 1
            time.sleep(0.03)

    def start(url):
        robot = RemoteRobot(url, owner="hand")
        robot.connect()
        threads.append((threading.Thread(target=circle, args=(robot,)), robot))
        threads[-1][0].start()

    yield start
    done.set()
    for thread, robot in threads:
        thread.join()
        robot.close()


@pytest.mark.slow
def test_wizard_writes_limits_of_a_driven_twin_that_serve_it(serve, driving, tmp_path, capsys, unhurried):
    server = serve(unhurried)
    twin, seen = server.application.robot.driver, []
    driving(server.url)
    out = tmp_path / "lab.yaml"
    watcher = threading.Thread(target=lambda: [(seen.append(twin.read().position), time.sleep(0.05)) for _ in range(60)])
    watcher.start()
    assert dispatch(["robot", "setup", server.url, "--out", str(out), "--seconds", "4", "--speed", "0.1"]) == 0
    watcher.join()
    said = capsys.readouterr().out
    assert "Drive the hand to every corner" in said and "robo/ArmReach-v0" in out.read_text() and "written" in said
    found = limits_from(out)
    inside = [np.all(place >= np.array(found.box_low) - 0.002) and np.all(place <= found.box_high) for place in seen[20:50]]
    assert np.mean(inside) > 0.95
    assert np.ptp([found.box_low, found.box_high], axis=0).max() < 0.5 and found.speed == 0.1
    with pytest.raises(InvalidSetting, match="such a file already"):
        dispatch(["robot", "setup", server.url, "--out", str(out), "--seconds", "1"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Which robot"),
        (["http://127.0.0.1:9", "--driver", "fake"], "Which robot"),
        (["--driver", "fake", "--seconds", "1.5"], "hardly moved"),
        (["--driver", "fake", "--freedrive"], "no freedrive"),
    ],
)
def test_wizard_says_what_is_wrong_and_writes_nothing(words, said, tmp_path):
    with pytest.raises(InvalidSetting, match=said):
        dispatch(["robot", "setup", *words, "--out", str(tmp_path / "lab.yaml")])
    assert not (tmp_path / "lab.yaml").exists()


@pytest.mark.slow
def test_universal_robot_is_free_during_the_drive_alone(tmp_path):
    pytest.importorskip("rtde_receive", reason="pip install ur_rtde")
    sys.path.insert(0, str(Path(__file__).parent))
    from rtde_peer import Peer

    peer, out = Peer(), tmp_path / "ur.yaml"
    done, was_free = threading.Event(), []

    def hand():
        number = 0
        while not done.wait(0.03):
            free = peer.get("teaches")
            was_free.append(free)
            number += free
            place = [0.45 + 0.1 * np.sin(number / 10), 0.15 * np.cos(number / 10), 0.3, np.pi, 0.0, 0.0]
            peer.set(actual_TCP_pose=place, actual_q=[0.1, -1.5, 1.4, -1.5, -1.57, 0.2 + 0.1 * np.sin(number / 10)])

    thread = threading.Thread(target=hand)
    thread.start()
    try:
        address = ["--driver.settings.address", peer.address, "--driver.settings.timeout", "20"]
        words = ["robot", "setup", "--driver", "ur", *address, "--freedrive", "--seconds", "4", "--out", str(out)]
        assert dispatch(words) == 0
    finally:
        done.set()
        thread.join()
        commands = [number for number, _ in peer.get("commands")]
        peer.close()
    assert True in was_free and commands.index(18) < commands.index(19) and 24 not in commands  # no set point was sent
    found = limits_from(out)
    assert len(found.joint_low) == 6 and found.dead_man == 0.3
    assert 0.33 - 0.002 <= found.box_low[0] < found.box_high[0] <= 0.57 + 0.002
