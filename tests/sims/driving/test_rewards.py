"""What driving pays, on traces whose sums are known."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from robo_sims.carla.rewards import CaRL, Shaped, Situation
from robo_sims.carla.roads import JUNCTION, WIDTH
from robo_sims.carla.routes import Route, RoutePosition, Tracker
from robo_sims.carla.scene import Ego, Scene

NOBODY = np.zeros((0, 8))


def car_at(x, y=0.0, heading=0.0, half_length=2.0):
    """Returns a row of a scene: a car that stands."""
    return np.array([[x, y, heading, 0.0, 0.0, half_length, 1.0, 0.0]])


def situation(completion, *, speed=10.0, limit=10.0, offset=0.0, reason=None, others=NOBODY, in_junction=False, yaw=0.0):
    ego = Ego(0.0, offset, yaw, speed * math.cos(yaw), speed * math.sin(yaw), 0.0, 0.0, 0.0, limit)
    place = RoutePosition(100 * completion, offset, 0.0, 3.5, in_junction)
    return Situation(Scene(0, ego, others), place, completion, reason)


def paid(reward, situations):
    """Returns the rewards of a trace, whose first situation is the reset."""
    reward.reset(situations[0])
    return [sum(reward.terms(one).values()) for one in situations[1:]]


def even(count, **settings):
    return [situation(number / count, **settings) for number in range(count + 1)]


def test_a_clean_route_pays_a_hundred_and_a_parked_car_nothing():
    assert sum(paid(CaRL(), even(200))) == pytest.approx(100.0)
    assert paid(CaRL(), [situation(0.3, speed=0.0)] * 50) == [0.0] * 49


@pytest.mark.parametrize(("over", "share"), [(0.0, 1.0), (1.115, 0.5), (2.23, 0.0), (9.0, 0.0)])
def test_too_much_speed_takes_progress_in_proportion(over, share):
    assert sum(paid(CaRL(), even(50, speed=10.0 + over))) == pytest.approx(100.0 * share)


def test_near_collision_halves_500_ticks_and_hit_is_first():
    trace = even(1000)
    trace[100] = situation(0.1, others=car_at(8.0))  # 10 m/s for 0.9 s is 9 m, and the two noses are 3.55 m apart
    rewards = paid(CaRL(), trace)
    assert rewards[:99] == pytest.approx([0.1] * 99)
    assert rewards[99:599] == pytest.approx([0.05] * 500)
    assert rewards[599:] == pytest.approx([0.1] * 401)


@pytest.mark.parametrize(
    ("others", "speed"),
    [(car_at(14.0), 10.0), (car_at(8.0, y=2.5), 10.0), (car_at(3.0), 0.05), (car_at(-8.0), 10.0)],
    ids=["too far for a second", "in the next lane", "who stands comes near nobody", "behind"],
)
def test_who_is_not_in_the_way_takes_nothing(others, speed):
    assert sum(paid(CaRL(), even(50, others=others, speed=speed))) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("reason", "last"),
    [
        ("collision_vehicle", -1.0),
        ("collision_walker", -1.0),
        ("red_light", -1.0),
        ("off_road", 0.0),
        ("route_deviation", 0.0),
        ("blocked", 0.0),
        ("goal", 2.0),
    ],
)
def test_last_step_pays_no_progress_after_infraction(reason, last):
    trace = [*even(50)[:50], situation(1.0, reason=reason)]
    rewards = paid(CaRL(), trace)
    assert rewards[:-1] == pytest.approx([2.0] * 49) and rewards[-1] == pytest.approx(last)


def test_progress_outside_the_lane_is_lost_for_good():
    trace = [*even(10)[:5], situation(0.8, offset=1.8), situation(0.9), situation(1.0)]
    assert paid(CaRL(), trace) == pytest.approx([10, 10, 10, 10, 0, 10, 10])


def test_lane_departure_over_3_s_halves_until_reset():
    beside, middle = [situation(n / 100, offset=0.6) for n in range(41)], [situation(n / 100) for n in range(41, 101)]
    rewards = paid(CaRL(), [*beside, *middle])
    # Tick 31 is the first above 30; at tick 40 the counter is 40, and ten clean ticks bring it back to 30.
    assert rewards[:30] == pytest.approx([1.0] * 30)
    assert rewards[30:49] == pytest.approx([0.5] * 19)
    assert rewards[49:] == pytest.approx([1.0] * 51)


def test_a_junction_freezes_the_counter_of_the_lane():
    trace = [situation(n / 100, offset=0.6, in_junction=True) for n in range(101)]
    assert sum(paid(CaRL(), trace)) == pytest.approx(100.0)


def test_each_kind_of_discomfort_takes_a_twelfth():
    reward = CaRL()
    reward.reset(situation(0.0, speed=0.0))
    # From 0 at 4 m/s2: the acceleration violates its limit, its beginning both limits of the jerk.
    for tick in range(1, 31):
        term = reward.terms(situation(tick / 100, speed=0.4 * tick, limit=20.0))["progress"]
    violated = {name for name, ticks in reward.comfort_ticks.items() if ticks}
    assert violated == {"forward_acceleration", "forward_jerk"}
    assert term == pytest.approx(1.0 - 0.5 * 2 / 6)


def test_smoothed_derivatives_are_those_of_a_parabola():
    reward = CaRL()
    ticks = [0.1 * n for n in range(20)]
    egos = [Ego(0, 0, 0.2 * t * t, 3 * t - t * t, 0.5 * t, 0, 0, 0, 10) for t in ticks]
    reward.reset(Situation(Scene(0, egos[0], NOBODY), RoutePosition(0, 0, 0, 3.5, False), 0.0, None))
    for ego in egos[1:]:
        found = reward.motion.update(ego)
    t, yaw = ticks[-1], 0.2 * ticks[-1] ** 2
    assert found["yaw_rate"] == pytest.approx(0.4 * t) and found["yaw_acceleration"] == pytest.approx(0.4)
    forward = (3 - 2 * t) * math.cos(yaw) + 0.5 * math.sin(yaw)
    assert found["forward_acceleration"] == pytest.approx(forward)
    assert found["jerk"] == pytest.approx(2.0) and found["forward_jerk"] == pytest.approx(-2.0 * math.cos(yaw))


def test_the_critic_sees_what_the_reward_remembers():
    reward = CaRL()
    reward.reset(situation(0.0))
    assert reward.memory_values() == [0.0] * len(CaRL.memory)
    reward.terms(situation(0.0, others=car_at(8.0), offset=0.6))
    assert reward.memory_values()[0] == pytest.approx(499 / 500) and reward.memory_values()[-1] == pytest.approx(1 / 60)


# ways to earn without getting anywhere: on a straight lane of 100 m

STRAIGHT = np.zeros((101, 6))
STRAIGHT[:, 0], STRAIGHT[:, WIDTH], STRAIGHT[:, JUNCTION] = np.arange(101), 3.5, 0


def trace_of(poses):
    """Returns the situations of a car at x, y, yaw every tenth of a second."""
    tracker, found = Tracker(Route(STRAIGHT)), []
    for (x, y, yaw), (nx, ny, _) in pairwise(poses):
        place = tracker.at(x, y)
        ego = Ego(x, y, yaw, (nx - x) / 0.1, (ny - y) / 0.1, 0, 0, 0, 10.0)
        found.append(Situation(Scene(0, ego, NOBODY), place, tracker.completion, None))
    return found


def standing():
    return [(8.0, 0.0, 0.0)] * 300


def back_and_forth():
    return [(8.0 + 5.0 * math.sin(0.1 * n), 0.0, 0.0) for n in range(629)]


def circling(radius):
    return [(8.0 + radius * math.sin(0.1 * n), -radius * math.cos(0.1 * n), 0.1 * n) for n in range(629)]


@pytest.mark.parametrize(
    "poses", [standing(), back_and_forth(), circling(1.0), circling(6.0)], ids=["stand", "shuttle", "tight", "wide"]
)
@pytest.mark.parametrize("reward", [CaRL, Shaped])
def test_who_gets_nowhere_earns_nothing(reward, poses):
    rewards = paid(reward(), trace_of(poses))
    first = round(len(rewards) / 10)  # the first round reaches its farthest place, which is progress
    assert sum(rewards[first:]) <= 0.01  # what the later rounds' samples reach beyond those of the first
    assert sum(rewards) <= 6.0


def test_shaped_terms_are_those_that_a_hand_computes():
    reward = Shaped()
    reward.reset(situation(0.0))
    terms = reward.terms(situation(0.1, speed=5.0, offset=0.875, yaw=math.pi / 3, reason="collision_static"))
    assert terms == pytest.approx({"speed": 0.1 * 0.25, "offset": -0.1 * 0.25, "angle": -0.1 * 0.25, "failure": -10.0})
    fast = reward.terms(situation(0.2, speed=11.115))
    assert fast["speed"] == pytest.approx(0.1 * (1.0 - 0.5))
    assert sum(reward.zero_terms().values()) == 0.0 and reward.memory_values() == []


def test_shaped_pays_no_speed_in_the_oncoming_lane():
    reward = Shaped()
    reward.reset(situation(0.0))
    aside = situation(0.1, offset=-3.4)
    assert reward.terms(aside)["speed"] == pytest.approx(0.1)
    oncoming = reward.terms(replace(aside, is_oncoming=True))
    assert oncoming["speed"] == 0.0 and sum(oncoming.values()) < 0
