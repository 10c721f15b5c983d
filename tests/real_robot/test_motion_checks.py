"""What the arm does is judged against what it was sent: an arm that misbehaves is stopped, one that is well is not.

The table of docs/robot-guard.md: python -m robo_bench.robot_motion
"""

from dataclasses import replace

import numpy as np
import pytest

from factories import rest_slow
from robo_bench.misbehaving_arm import KINDS
from robo_bench.robot_motion import LIMITS, SLOW, misbehaviour, off_after_reset, outside_box
from robo_real.arm import ArmState, ArmTarget
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.motion_checks import MotionChecks
from robo_real.rotations import DOWN, turned
from robo_real.twin import Twin

HERE = np.array([0.46, 0.0, 0.24])
TICK = 0.02
WITHIN_LIMITS = ("overshoots, gain 3", "overshoots, gain 8")
"""Arms whose motion stays within the limits of speed: gain 3 always, gain 8 only at 0.8 m/s."""
STOPPED = [
    (kind, name)
    for name, limits in LIMITS.items()
    for kind in KINDS
    if kind not in WITHIN_LIMITS or (kind == WITHIN_LIMITS[1] and limits is SLOW)
]


@pytest.mark.parametrize(("kind", "name"), rest_slow(STOPPED, fast=3))
def test_arm_that_misbehaves_is_stopped_in_time(kind, name):
    limits = LIMITS[name]
    found = misbehaviour(kind, limits, watched=0.5)
    assert found.after is not None and found.after <= 0.2
    assert found.way <= 3 * limits.reach  # rest included


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_arm_that_misbehaves_is_stopped_if_its_response_is_known(kind):
    if kind not in WITHIN_LIMITS:
        assert misbehaviour(kind, SLOW, knows_response=True).after is not None


@pytest.mark.parametrize("kind", rest_slow(list(WITHIN_LIMITS)))
def test_arm_within_its_limits_is_not_stopped(kind):
    found = misbehaviour(kind, TWIN, watched=1.0)
    assert found.fault == "" and found.speed < 1.1 * TWIN.speed


def test_arm_that_behaves_is_not_stopped():
    found = misbehaviour("well", SLOW)
    assert found.fault == "" and found.way > 0.01


@pytest.mark.parametrize("side", rest_slow([1, -1]))
def test_hand_stays_in_its_box_where_the_arm_is_stretched(side):
    outside, _ = outside_box(side)
    assert outside <= 0.003


@pytest.mark.parametrize("away", rest_slow([0.12, 0.04, 0.08, 0.16, 0.2]))
def test_reset_of_a_deaf_client_ends_where_it_asked(away):
    off, took = off_after_reset(away)
    assert off < 0.003
    assert took > away / SLOW.speed  # no faster than the limits


def state(stamp, position=HERE, velocity=(0.0,) * 3, *, quaternion=DOWN, force=(0.0,) * 3, joints=(0.0,) * 7):
    return ArmState(
        stamp=stamp,
        position=np.asarray(position, float),
        quaternion=quaternion,
        velocity=np.array([*velocity, 0.0, 0.0, 0.0]),
        force=np.asarray(force, float),
        torque=np.zeros(3),
        joint_position=np.asarray(joints, float),
        joint_velocity=np.zeros(7),
        jacobian=np.zeros((6, 7)),
        opening=0.04,
    )


def seen(path, lead=None, limits=SLOW, tick=TICK, velocities=None, **shown):
    """Returns the first fault of a hand on a path (N, 3) [m] and its time; lead: of set points, None if the arm is held."""
    checks = MotionChecks(limits)
    for number, offset in enumerate(path):
        here = np.add(HERE, offset)
        sent = None if lead is None else ArmTarget(here + lead, DOWN, None)
        velocity = (0.0,) * 3 if velocities is None else velocities[number]
        if found := checks.fault(state(number * tick, here, velocity, **shown), sent, number * tick):
            return found, number * tick
    return "", None


def straight(speed, seconds=1.0, tick=TICK, axis=1):
    return np.outer(np.arange(0.0, seconds, tick), np.eye(3)[axis] * speed)


def test_speed_above_the_limit_is_a_fault_within_0_1_s():
    found, after = seen(straight(2.0 * SLOW.speed))
    assert found == "moves_too_fast" and after <= 0.1
    assert seen(straight(1.1 * SLOW.speed), lead=[0.0, 0.005, 0.0]) == ("", None)


@pytest.mark.parametrize("tick", [0.01, 0.02, 0.05, 0.2])
def test_late_ticks_of_a_hand_at_its_limit_raise_no_alarm(tick):
    assert seen(straight(SLOW.speed, tick=tick), lead=[0.0, 0.005, 0.0], tick=tick) == ("", None)


def test_hand_that_goes_away_is_a_fault():
    path, lead = straight(0.08), [0.0, -0.005, 0.0]
    found, after = seen(path, lead)
    assert found == "moves_away" and after <= 0.1
    assert seen(path, lead, force=(0.0, 0.5 * SLOW.soft_force, 0.0)) == ("", None)
    slowing = np.outer(0.1 * 0.06 * (1 - np.exp(-np.arange(0, 0.2, TICK) / 0.06)), [0.0, 1.0, 0.0])  # a reversal of a slow arm
    assert seen(slowing, lead) == ("", None)


def test_held_arm_that_wanders_off_is_a_fault():
    path = straight(0.05)
    assert seen(path, force=(0.0, 0.0, 0.5))[0] == "moves_away"
    assert seen(path) == ("", None)  # a person may push an arm that feels nothing


def test_hand_that_stays_with_noise_is_frozen():
    noise = np.random.default_rng(0).normal(0, 1e-5, (50, 3))
    found, after = seen(noise, [0.006, 0.0, 0.0])
    assert found == "state_frozen" and after <= SLOW.state_age + 3 * TICK
    assert seen(noise, [0.006, 0.0, 0.0], force=(-7.0, 0.0, 0.0), limits=replace(SLOW, soft_force=15.0)) == ("", None)
    assert seen(noise, [0.003, 0.0, 0.0]) == ("", None)


def test_place_that_contradicts_the_velocity_is_a_fault():
    path = straight(0.05)
    right, wrong = np.tile([0.0, 0.05, 0.0], (50, 1)), np.tile([0.0, -0.05, 0.0], (50, 1))
    lead = [0.0, 0.003, 0.0]
    assert seen(path, lead, velocities=right) == ("", None)
    found, after = seen(path, lead, velocities=wrong)
    assert found == "velocity_contradicts_position" and after <= 0.1


def test_turn_too_fast_and_the_wrong_way_are_faults():
    checks, found = MotionChecks(SLOW), ""
    for number in range(10):
        here = turned(DOWN, [0.0, 0.0, 0.4 * number * TICK])
        found = found or checks.fault(
            state(number * TICK, quaternion=here), ArmTarget(HERE, turned(here, [0.0, 0.0, -0.05]), None), number * TICK
        )
    assert found == "turns_away"


def test_scene_that_is_reset_is_no_motion():
    twin = Twin(clock=ManualClock())
    robot = GuardedArm(twin, SLOW, spec=twin.spec, scene=twin)
    robot.connect()
    robot.arm()
    for _ in range(3):
        state_ = robot.measure()
        robot.move(ArmTarget(np.add(state_.position, [0.03, 0.0, 0.03]), state_.quaternion, None))
        twin.clock.sleep(0.3)
        robot.reset_scene(0)
        robot.arm()
        twin.clock.sleep(0.2)
    assert robot.guard.reason == ""
    robot.close()


def test_driver_that_reports_no_velocity_is_driven():
    arm = FakeArm(clock=ManualClock())
    read = arm._state
    arm._state = lambda: replace(read(), velocity=np.zeros(6))
    robot = GuardedArm(arm, SLOW)
    robot.connect()
    robot.arm()
    start = robot.measure()
    robot.move(ArmTarget(np.add(start.position, [0.04, 0.0, 0.0]), start.quaternion, None))
    arm.clock.sleep(2.0)
    assert robot.guard.reason == "" and robot.measure().position[0] - start.position[0] == pytest.approx(0.04, abs=0.002)
    robot.close()
