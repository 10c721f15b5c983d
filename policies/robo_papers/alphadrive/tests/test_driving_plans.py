"""Driving in plans: one state for one seed, what a plan is worth, which are refused, and routes of plans."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from robo_papers.alphadrive.plans import PLANS, VALID, is_blocked
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import specification

pytest.importorskip("carla")
pytest.importorskip("msgpack")
HIGHWAY = {"scenario": "blocked-lane", "route_length": 80.0}


def planned(name="carla/Highway-v0", arguments=HIGHWAY, **settings):
    """Return a driving task in plans, without pictures."""
    return make_environment(name, birdseye=0, wrappers=[{"name": "planned", **settings}], **arguments)


@pytest.fixture(scope="module")
def environment():
    made = planned(weights={"left": 1.5, "stop": 2.0})
    yield made
    made.close()


def judged(environment, seed, plan):
    first, _ = environment.reset(seed=seed)
    _, reward, terminated, truncated, info = environment.step(np.asarray(PLANS.index(plan)))
    assert (terminated, truncated) == (True, False)
    return first, reward, info


def at(environment, blocked, lanes):
    """Return the first seed of such a state, with the obstacle near."""
    for seed in range(60):
        seen, _ = environment.reset(seed=seed)
        is_near = seen["others"][0][0] and seen["others"][0][1] < 20.0
        if (is_blocked(seen) and is_near) == blocked and seen["lanes"].tolist() == lanes and seen["velocity"][0] > 3.0:
            return seed
    raise AssertionError


@pytest.mark.slow
def test_plans_of_one_seed_begin_in_one_state(environment):
    states = [judged(environment, 2, plan)[0] for plan in ("keep_lane", "stop_right", "faster_left")]
    for other in states[1:]:
        assert all(np.array_equal(states[0][name], other[name]) for name in other)
    with pytest.raises(ResetNeeded):
        environment.step(np.asarray(0))
    again, _ = environment.reset(seed=3)
    assert any(not np.array_equal(states[0][name], again[name]) for name in again)
    assert specification(environment).observation.space.contains(states[0])


@pytest.mark.slow
def test_a_plan_is_worth_what_it_drives(environment):
    fork = at(environment, True, [1.0, 1.0])
    worth = {plan: judged(environment, fork, plan) for plan in PLANS}
    assert worth["faster_lane"][2]["stop_reason"] == "collision_vehicle" and worth["faster_lane"][1] == VALID
    assert not worth["faster_lane"][2]["success"] and worth["faster_right"][2]["success"]
    right, left = (worth[plan][2]["reward_terms"]["accuracy"] for plan in ("faster_right", "faster_left"))
    progress = worth["faster_right"][2]["measures"]["progress"]
    assert 0.2 < progress < 1.0 and right == pytest.approx(0.3 + 0.7 * progress)
    beside = worth["faster_left"][2]["measures"]["progress"]
    assert left == pytest.approx(1.5 * (0.3 + 0.7 * beside))  # weighted, something being in the way
    stopped = worth["stop_lane"][2]
    assert stopped["reward_terms"]["accuracy"] == pytest.approx(2.0 * (0.3 + 0.7 * stopped["measures"]["progress"]))
    free = at(environment, False, [1.0, 1.0])
    _, _, info = judged(environment, free, "keep_left")
    assert info["reward_terms"]["accuracy"] == pytest.approx(0.3 + 0.7 * info["measures"]["progress"])  # no weight here


@pytest.mark.slow
def test_a_lane_that_there_is_not_is_worth_nothing(environment):
    edge = at(environment, False, [0.0, 1.0])
    _, reward, info = judged(environment, edge, "faster_left")
    assert reward == 0.0 and not info["success"] and info["measures"]["invalid"] == 1.0
    assert judged(environment, edge, "faster_right")[1] > VALID


@pytest.mark.slow
def test_routes_of_plans_pass_the_obstacle():
    environment = planned(whole=True)
    spec = specification(environment)
    assert spec.max_steps == 16 and spec.action.control_period == pytest.approx(3.0)
    script = environment.get_wrapper_attr("scripted_policy")(0)
    driven = [rollout(environment, script, seed=seed) for seed in range(6)]
    assert sum(bool(episode.success) for episode in driven) >= 4
    assert all(len(episode) <= 16 for episode in driven)
    ways = {PLANS[int(action)].split("_")[1] for episode in driven for action in episode.actions}
    assert {"lane", "left", "right"} & ways >= {"lane"} and len(ways) >= 2
    environment.reset(seed=2)
    for _ in range(16):
        _, _, terminated, truncated, info = environment.step(np.asarray(PLANS.index("faster_lane")))
        if terminated or truncated:
            break
    assert terminated and info["stop_reason"] == "collision_vehicle"
    environment.close()


@pytest.mark.slow
def test_no_plan_is_faster_than_the_pace():
    environment = planned(arguments={"route_length": 120.0}, whole=True, pace=6.0)
    environment.reset(seed=0)
    for _ in range(5):
        observation, *_ = environment.step(np.asarray(PLANS.index("faster_lane")))
    assert 5.0 < observation["velocity"][0] < 6.5
    environment.close()


@pytest.mark.slow
def test_states_lie_before_the_end_of_the_route():
    """On 25 m three plans of the script often reach the end: the state is then one that has a plan left."""
    environment = planned(arguments={"route_length": 25.0}, prefix=6)
    for seed in range(8):
        observation, _ = environment.reset(seed=seed)
        assert observation["left"][0] > 0.0
        _, _, terminated, _, info = environment.step(np.asarray(PLANS.index("keep_lane")))
        assert terminated and info["stop_reason"] in ("goal", "failure")
    environment.close()


@pytest.mark.slow
def test_a_lane_of_oncoming_traffic_is_none():
    environment = planned("carla/Town-v0", {"route_length": 60.0}, prefix=0)
    lanes = [environment.reset(seed=seed)[0]["lanes"] for seed in range(6)]
    assert not any(left for left, _ in lanes)
    environment.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"horizon": 0}, "horizon"),
        ({"prefix": -1}, "prefix"),
        ({"safe": 1.5}, "safe"),
        ({"weights": {"up": 1.0}}, "part of a plan"),
        ({"weights": {"left": -1.0}}, "weight of left"),
    ],
)
def test_settings_out_of_range_are_refused(given, message):
    with pytest.raises((InvalidSetting, UnknownName), match=message):
        planned(**given)


def test_plans_are_of_driving_tasks():
    with pytest.raises(InvalidSetting, match="driving task"):
        make_environment("hazards/Point-v0", wrappers=[{"name": "planned"}])
