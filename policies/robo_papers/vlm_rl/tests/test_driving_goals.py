"""Contrasting language goals of a car: what is paid for speed, offset and angle."""

import math

import numpy as np
import pytest

from robo_papers.vlm_rl.reward import DrivingGoals
from robo_rl.errors import InvalidSetting


def goals(**settings):
    return DrivingGoals(model="colours", undesired="red", desired="green", low=0.0, high=1.0, **settings)


def test_as_fast_as_looks_safe_times_keeping_to_the_lane():
    reward = goals(top_speed=8.0)
    states = np.array([[8.0, 0, 0], [4.0, 0, 0], [4.0, 0, 0], [8.0, 1.5, 0], [8.0, 0, -math.pi / 4], [8.0, -4.0, 0]])
    safety = np.array([1.0, 1.0, 0.5, 1.0, 1.0, 1.0])
    assert reward.combined(safety, states) == pytest.approx([1.0, 0.5, 0.5, 0.5, 0.5, 0.0])


def test_standing_pays_nothing_and_overspeed_costs():
    reward = goals(top_speed=8.0)
    standing = np.zeros((3, 3))
    assert reward.combined(np.array([0.0, 0.5, 1.0]), standing) == pytest.approx([0.0, 0.0, 0.0])
    fast = np.array([[8.0, 0, 0], [8.0, 2.5, 1.0], [8.0, 0, 0]])
    assert reward.combined(np.array([0.0, 0.0, 0.5]), fast) == pytest.approx([-1.0, -1.0, 0.0])


def test_speed_offset_and_angle_come_from_observation():
    turned, offset = 0.3, 0.8  # the lane's direction and the distance of its middle to the right, seen from the car
    across = np.array([-math.sin(turned), math.cos(turned)])
    ahead = np.array([2.0, 4.0])[:, None] * np.array([math.cos(turned), math.sin(turned)]) + offset * across
    observations = {"velocity": np.array([[5.0, 0.1]]), "route": np.array([ahead])}
    speed, aside, angle = goals().states(observations)[0]
    assert (speed, abs(aside), angle) == pytest.approx((5.0, offset, turned))
    with pytest.raises(InvalidSetting, match="Driving goals need a car"):
        goals().states({"velocity": np.zeros((1, 2))})
