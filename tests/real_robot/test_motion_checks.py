"""What the arm does is judged against what it was sent: an arm that misbehaves is stopped, one that is well is not.

The table of docs/robots/robot-guard.md: python -m robo_bench.robot_motion
"""

from collections import deque
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from factories import rest_slow
from robo_bench.misbehaving_arm import KINDS, MisbehavingArm
from robo_bench.robot_motion import LIMITS, SLOW, misbehaviour, off_after_reset, outside_box
from robo_real.arm import ArmState, ArmTarget
from robo_real.checks import AWAY, MotionChecks
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.rotations import DOWN, pointing_down, turned
from robo_real.twin import Twin
from robo_rl.errors import RobotStopped

HERE = np.array([0.46, 0.0, 0.24])
TICK = 0.02
FOLLOWS = "overshoots, gain 3"
"""An arm that misbehaves for 40 ms, within the limits of speed, and then follows its set points more closely than before."""
BRISK = replace(SLOW, speed=0.25, acceleration=2.5, turn_speed=1.0, turn_acceleration=10.0, reach=0.02)
"""About the most that people allow an arm whose response is not known."""
STOPPED = [(kind, name) for name in LIMITS for kind in KINDS if kind != FOLLOWS]


@pytest.mark.parametrize(("kind", "name"), rest_slow(STOPPED, fast=3))
def test_arm_that_misbehaves_is_stopped_in_time(kind, name):
    limits = LIMITS[name]
    found = misbehaviour(kind, limits, watched=0.5)
    swings = kind == "overshoots, gain 8" and limits is TWIN  # around its set points, within the limit of speed
    assert found.after is not None and found.after <= (0.2 if swings else 0.1) + 1e-6
    assert found.way <= (2.0 if swings else 1.5) * limits.reach  # rest included


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != FOLLOWS])
def test_arm_that_misbehaves_is_stopped_if_its_response_is_known(kind):
    assert misbehaviour(kind, SLOW, knows_response=True).after is not None


def test_arm_that_follows_more_closely_is_not_stopped():
    found = misbehaviour(FOLLOWS, TWIN, watched=1.0)
    assert found.fault == "" and found.speed < 0.5 * TWIN.speed


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


def test_hand_that_speeds_up_away_is_a_fault_before_its_limits():
    times = np.arange(0.0, 0.2, TICK)
    path, lead = np.outer(0.5 * 0.8 * times**2, [0.0, 1.0, 0.0]), [0.0, -0.005, 0.0]
    found, after = seen(path, lead)
    assert found == "moves_away" and after <= 0.1 + 1e-6 and np.linalg.norm(path[round(after / TICK)]) < AWAY * SLOW.reach
    assert seen(path[: round(after / TICK) + 1], [0.0, -0.0004, 0.0]) == ("", None)  # its set point is where it is


def test_hand_that_goes_away_at_one_speed_is_slowing_no_more():
    speeds = np.r_[0.06 * np.ones(3), 0.025 * np.ones(40)]
    found, after = seen(np.outer(np.cumsum(speeds) * TICK, [0.0, 1.0, 0.0]), [0.0, -0.005, 0.0])
    assert found == "moves_away" and after <= 0.5


def test_hand_that_swings_around_its_set_points_is_a_fault():
    times = np.arange(0.0, 1.0, TICK)
    swings = np.outer(0.005 * np.sin(2 * np.pi * 8 * times), [1.0, 0.0, 0.0])
    limits = replace(SLOW, speed=0.8, reach=0.02)

    def faults(points):
        checks = MotionChecks(limits)
        moves = zip(times, swings, points, strict=True)
        return {checks.fault(state(t, HERE + swing), ArmTarget(HERE + point, DOWN, None), t) for t, swing, point in moves}

    assert "outruns_command" in faults(np.zeros_like(swings))
    assert faults(np.roll(swings, -1, axis=0)) == {""}  # it was sent to and fro


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


def test_copy_of_an_old_measurement_is_found_by_its_velocity():
    still = np.tile([0.0, 0.0, 0.0], (50, 1)) + np.random.default_rng(0).normal(0, 1e-6, (50, 3))
    lead = [0.0, 0.003, 0.0]
    found, after = seen(still, lead, velocities=np.tile([0.0, 0.07, 0.0], (50, 1)))
    assert found == "velocity_contradicts_position" and after <= 0.1
    late = np.outer(0.1 * np.exp(-np.arange(50) * TICK / 0.03), [0.0, 1.0, 0.0])  # a velocity that is filtered, after a halt
    assert seen(still, lead, velocities=late) == ("", None)


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


class LateArm(MisbehavingArm):
    """An arm that behaves, and follows each set point some ticks after it came, as over a network."""

    def __init__(self, ticks, *, knows_response=False):
        super().__init__("well", knows_response=knows_response)
        self._queue = deque(maxlen=ticks + 1)

    def tick(self, state, now):
        point = super().tick(state, now)
        if point is None:
            return None
        self._queue.append(point)
        return self._queue[0]


@pytest.mark.slow
@pytest.mark.parametrize("limits", [SLOW, BRISK], ids=["slow", "brisk"])
@pytest.mark.parametrize("ticks", rest_slow([2, 0, 1, 3]))
def test_arm_that_follows_late_raises_no_alarm(ticks, limits):
    """Goals all over the box, reversed now and then, as often as clients may send them."""
    rng, arm = np.random.default_rng(ticks), LateArm(ticks)
    robot = GuardedArm(arm, limits)
    robot.connect()
    robot.watchdog.close()  # it looks in wall time
    robot.arm()
    low, high = np.asarray(limits.box_low), np.asarray(limits.box_high)
    way, before = 0.0, robot.measure().position
    for _ in range(25):
        goal, turn, wait = rng.uniform(low, high), rng.uniform(-1.5, 1.5), 10 ** rng.uniform(-2, -0.5)
        for number in range(int(rng.integers(3, 20))):
            here = robot.measure().position
            way, before = way + float(np.linalg.norm(here - before)), here
            step = np.clip(goal - here, -0.8 * limits.jump, 0.8 * limits.jump) / np.sqrt(3)
            with suppress(RobotStopped):
                robot.move(ArmTarget(np.clip(here + step * (-1) ** (number // 4), low, high), pointing_down(turn), 0.04))
            arm.clock.sleep(wait)
        assert robot.guard.reason == ""
    robot.close()
    assert way > 0.1
