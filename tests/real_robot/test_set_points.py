"""Set points between the guard and an arm: what they do to a hand at each tick, and to one whose response is unknown."""

from dataclasses import replace

import numpy as np
import pytest

from robo_real.arm import ArmState, ArmTarget, Response
from robo_real.limits import TWIN
from robo_real.rotations import DOWN, OrientationCone, pointing_down
from robo_real.set_points import PoseSetPoints

TICK = 0.01
HERE = np.array([0.46, 0.0, 0.24])
RESPONSE = Response(lag=0.04, quickest=0.005)


def state(
    position=HERE, velocity=(0.0,) * 6, *, quaternion=DOWN, force=(0.0,) * 3, joints=(0.0,) * 7, jacobian=None, rates=None
):
    return ArmState(
        stamp=0.0,
        position=np.asarray(position, float),
        quaternion=quaternion,
        velocity=np.asarray(velocity, float),
        force=np.asarray(force, float),
        torque=np.zeros(3),
        joint_position=np.asarray(joints, float),
        joint_velocity=np.zeros(7) if rates is None else np.asarray(rates, float),
        jacobian=np.zeros((6, 7)) if jacobian is None else jacobian,
        opening=0.04,
    )


def leading(limits=TWIN, response=None):
    box = np.asarray(limits.box_low), np.asarray(limits.box_high)
    return PoseSetPoints(limits, box, OrientationCone(limits.tilt, limits.turn, limits.reference), response)


def goal(offset, quaternion=DOWN):
    return ArmTarget(HERE + np.asarray(offset, float), quaternion, 0.04)


def way(points, target, ticks, tick=TICK, **shown):
    """Return the set points (N, 3) of a hand that is where it was sent."""
    here, found = HERE, []
    for _ in range(ticks):
        here = points.next(target, state(here, **shown), tick).position
        found.append(here)
    return np.array(found)


def test_set_points_of_a_short_step_are_the_pose_itself():
    sent = leading(response=RESPONSE).next(goal([0.004, -0.002, 0.003], pointing_down(0.01)), state(), TICK)
    np.testing.assert_allclose(sent.position, np.add(HERE, [0.004, -0.002, 0.003]), atol=1e-9)
    np.testing.assert_allclose(sent.quaternion, pointing_down(0.01), atol=1e-9)


def test_set_points_lead_no_further_than_the_acceleration_allows():
    sent = leading(response=RESPONSE).next(goal([0.015, 0, 0]), state(), TICK)
    after = (sent.position[0] - HERE[0]) / RESPONSE.lag * RESPONSE.share(TICK)
    assert after == pytest.approx(TWIN.acceleration * TICK)


@pytest.mark.parametrize("tick", [0.001, 0.008, 0.02])
def test_set_points_of_unknown_arm_limit_speed_and_acceleration(tick):
    limits = replace(TWIN, speed=0.2, acceleration=1.0, reach=0.05)
    path = np.vstack([HERE, way(leading(limits), goal([0.08, 0.06, 0.0]), round(2 / tick), tick)])
    speeds = np.linalg.norm(np.diff(path, axis=0), axis=1) / tick
    assert speeds.max() <= limits.speed + 1e-9
    assert np.diff(speeds, prepend=0.0).max() / tick <= limits.acceleration + 1e-6
    np.testing.assert_allclose(path[-1], np.add(HERE, [0.08, 0.06, 0.0]), atol=1e-3)


@pytest.mark.parametrize("response", [None, RESPONSE])
def test_set_points_make_no_way_in_no_time(response):
    points = leading(response=response)
    for _ in range(1000):
        sent = points.next(goal([0.05, 0, 0]), state(), 0.0)
    np.testing.assert_allclose(sent.position, HERE, atol=1e-12)


def test_set_points_slow_down_before_a_side_of_the_box():
    edge = np.array([TWIN.box_high[0] - 0.002, 0.0, 0.24])
    points = leading(response=RESPONSE)
    fast = points.next(ArmTarget(np.add(edge, [0.002, 0, 0]), DOWN, 0.04), state(edge, [0.4, 0, 0, 0, 0, 0]), TICK)
    assert fast.position[0] <= edge[0]  # it brakes
    outside = np.array([TWIN.box_high[0] + 0.001, 0.0, 0.24])
    back = points.next(ArmTarget(np.add(edge, [0.002, 0, 0]), DOWN, 0.04), state(outside), TICK)
    assert back.position[0] == pytest.approx(TWIN.box_high[0] - 0.001)


def test_set_points_press_no_further_along_an_axis():
    pushed = {"force": (0, 0, TWIN.soft_force + 1)}
    for response in (None, RESPONSE):
        points = leading(response=response)
        for _ in range(20):
            sent = points.next(goal([0.01, 0, -0.01]), state(**pushed), TICK)
        assert sent.position[2] == pytest.approx(HERE[2]) and sent.position[0] > HERE[0] + 0.003


def test_set_points_stay_within_reach_of_a_blocked_hand():
    points = leading()
    for _ in range(200):
        sent = points.next(goal([0.09, 0, 0], pointing_down(1.0)), state(), TICK)
    assert sent.position[0] == pytest.approx(HERE[0] + TWIN.reach)


def test_set_points_keep_joint_speeds_and_limits():
    jacobian = np.zeros((6, 7))
    jacobian[:, :6] = 0.1 * np.eye(6)  # a joint turns ten times as fast as the hand goes
    limits = replace(TWIN, joint_speed=(0.5,) * 7)
    sent = leading(limits, RESPONSE).next(goal([0.02, 0, 0]), state(jacobian=jacobian), TICK)
    after = (sent.position[0] - HERE[0]) / RESPONSE.lag * RESPONSE.share(TICK)
    assert 0 < after <= 0.05 * 1.05
    joints = (TWIN.joint_high[0] - TWIN.joint_margin, *(0.0,) * 6)
    stuck = leading(limits, RESPONSE).next(goal([0.02, 0, 0]), state(jacobian=jacobian, joints=joints), TICK)
    np.testing.assert_allclose(stuck.position, HERE, atol=1e-9)
    back = leading(limits, RESPONSE).next(goal([-0.02, 0, 0]), state(jacobian=jacobian, joints=joints), TICK)
    assert back.position[0] < HERE[0]


def test_set_points_are_slower_if_measured_joints_are_too_fast():
    quick = [0.0] * 5 + [2 * TWIN.joint_speed[5], 0.0]
    free = way(leading(), goal([0.05, 0, 0]), 5)
    slowed = way(leading(), goal([0.05, 0, 0]), 5, rates=quick)
    assert slowed[-1][0] - HERE[0] < 0.7 * (free[-1][0] - HERE[0])
