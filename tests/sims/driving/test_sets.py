"""The observation layout of sets: places along the route by hand, rows of members, and the same expert in both layouts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robo_rl.errors import UnknownName
from robo_sims.carla.driver import ScriptedDriver
from robo_sims.carla.environment import LAYOUTS
from robo_sims.carla.family import FAMILY
from robo_sims.carla.observations import FAR
from robo_sims.carla.rewards import Situation
from robo_sims.carla.routes import Route, RoutePosition
from robo_sims.carla.scene import GREEN, RED, Ego, Scene
from robo_sims.carla.sets import CARS, WALKERS, along_route

NORTH = -math.pi / 2
"""[rad] to the left of east: y is to the right of x."""


def east(length=100):
    """A straight route along x from (10, 5)."""
    points = np.zeros((length + 1, 6))
    points[:, 0], points[:, 1], points[:, 4] = 10.0 + np.arange(length + 1), 5.0, 3.5
    return Route(points)


def corner():
    """50 m east from the origin, then 50 m north."""
    points = np.zeros((101, 6))
    points[:51, 0] = np.arange(51)
    points[51:, 0], points[51:, 1], points[51:, 3] = 50.0, -np.arange(1, 51), NORTH
    return Route(points)


def test_places_are_along_and_aside_of_the_route():
    places = np.array([[30.0, 5.0], [27.4, 8.0], [10.0, 0.0], [40.3, 4.0]])
    np.testing.assert_allclose(along_route(east(), 20.0, places), [[0, 0], [-2.6, 3], [-20, -5], [10.3, -1]], atol=1e-9)


def test_places_beyond_a_corner_are_along_the_route():
    found = along_route(corner(), 40.0, np.array([[50.0, -20.0], [53.0, -20.0], [48.0, -30.5]]))
    np.testing.assert_allclose(found, [[30, 0], [30, 3], [40.5, -2]], atol=1e-9)


def test_places_beyond_the_ends_go_on_straight():
    np.testing.assert_allclose(along_route(corner(), 99.0, np.array([[50.0, -70.0]])), [[21, 0]], atol=1e-9)
    np.testing.assert_allclose(along_route(corner(), 0.0, np.array([[-7.0, 1.0]])), [[-7, 1]], atol=1e-9)
    np.testing.assert_allclose(along_route(corner(), 115.0, np.array([[50.0, -60.0]])), [[-5, 0]], atol=1e-9)


def situation(others=(), lights=(), signs=(), s=40.0):
    """The car at 40 m of the corner's route, at 8 m/s to the east."""
    ego = Ego(s, 0.0, 0.0, 8.0, 0.0, 0.5, 0.0, 0.0, 13.9)
    rows = np.array(others, float).reshape(-1, 8)
    scene = Scene(7, ego, rows, list(lights), list(signs))
    return Situation(scene, RoutePosition(s, 0.0, 0.0, 3.5, False), 0.4, None)


def observed(layout, *arguments, **facts):
    arrays, compute = LAYOUTS[layout]
    found = compute(situation(*arguments, **facts), corner(), np.array([0.1, -0.2]))
    assert {array.name: array.shape for array in arrays} == {name: value.shape for name, value in found.items()}
    assert all(value.dtype == np.float32 for value in found.values())
    return found


CAR = (50.0, -20.0, NORTH, 0.0, -6.0, 2.4, 0.9, 0.0)
WALKER = (50.0, -4.0, 0.0, 1.5, 0.0, 0.3, 0.2, 1.0)


def test_members_have_place_motion_size_and_way():
    found = observed("sets", [CAR, WALKER])
    np.testing.assert_allclose(found["cars"][0], [1, 10, -20, 0, -1, -8, -6, 2.4, 0.9, 30, 0, 36, 0, 42, 0], atol=1e-6)
    np.testing.assert_allclose(found["walkers"][0], [1, 10, -4, 1, 0, -6.5, 0, 0.3, 0.2, 14, 0, 14, 1.5, 14, 3], atol=1e-6)
    assert not found["cars"][1:].any() and not found["walkers"][1:].any()


def test_more_than_all_rows_leave_out_the_farthest():
    cars = [(44.0 + 2 * number, 3.0, 0.0, 0.0, 0.0, 2.4, 0.9, 0.0) for number in range(CARS + 3)]
    found = observed("sets", [*cars[::-1], *[WALKER] * (WALKERS + 1)])
    np.testing.assert_allclose(found["cars"][:, 1], 4.0 + 2 * np.arange(CARS))
    assert found["walkers"][:, 0].all()
    assert not observed("sets", [(40.0, 61.0, 0, 0, 0, 2, 1, 0)])["cars"].any(), "out of sight"


def test_lights_and_signs_are_those_ahead():
    lights = [(39.0, RED), (52.0, RED), (90.0, GREEN), (95.0, RED)]
    found = observed("sets", lights=lights, signs=[(30.0, "traffic.stop"), (60.0, "traffic.yield"), (150.0, "traffic.stop")])
    np.testing.assert_allclose(found["lights"], [[1, 12, 1, 0, 0], [1, 50, 0, 0, 1]])
    np.testing.assert_allclose(found["signs"], [[1, 20, 0, 1], [0, 0, 0, 0]])
    assert not observed("sets")["lights"].any()


@pytest.mark.parametrize("lights", [[], [(52.0, RED)], [(40.0 + FAR, RED)], [(39.0, RED), (75.0, GREEN)]])
@pytest.mark.parametrize("others", [[], [CAR], [WALKER, CAR], [(50.0, 0.0, 0.0, 2.0, 0.0, 2.4, 0.9, 0.0)]])
def test_expert_acts_alike_in_both_layouts(others, lights):
    actions = [
        ScriptedDriver(None, seed=0, noise=0.0).act(observed(layout, others, lights=lights), deterministic=True)
        for layout in LAYOUTS
    ]
    np.testing.assert_array_equal(*actions)


def test_unknown_layout_is_refused():
    pytest.importorskip("carla")
    with pytest.raises(UnknownName, match=r"observation layout 'set'(.|\n)*sets"):
        FAMILY.make("Town-v0", layout="set")


@pytest.mark.slow
def test_environment_of_sets_keeps_its_spec(driven):
    found = driven(
        """
        from robo_rl.conformance.environments import check_environment
        environment = FAMILY.make("Town-v0", traffic=12, walkers=3, birdseye=0, layout="sets", map="stops_test_1")
        observation, _ = environment.reset(seed=3)
        result["keys"] = sorted(observation)
        seen = {name: 0.0 for name in ("cars", "walkers", "lights", "signs")}
        policy = environment.scripted_policy(0)
        for _ in range(200):
            assert observation in environment.observation_space
            for name in seen:
                seen[name] = max(seen[name], float(observation[name][:, 0].sum()))
            observation, _, terminated, truncated, _ = environment.step(policy.act(observation))
            if terminated or truncated:
                observation, _ = environment.reset()
        result["seen"] = seen
        environment.close()
        """
    )
    assert {"cars", "walkers", "lights", "signs", "route", "velocity"} <= {*found["keys"]}
    assert found["seen"]["cars"] > 2 and found["seen"]["walkers"] > 0 and found["seen"]["signs"] > 0
