"""The scripted driver before a left turn: it lets those pass who come across its way, and does not wait for ever."""

import math

import numpy as np
import pytest

from robo_sims.carla.driver import WAITING, ScriptedDriver, Seen
from robo_sims.carla.observations import DISTANCES

RADIUS, BEGIN = 14.0, 1.0
"""[m] of the turn, and from the car to its begin."""


def route(turn):
    """Points ahead: straight on, then to the left (-1), to the right (1), or straight on (0)."""
    bent = np.maximum(DISTANCES - BEGIN, 0.0) / RADIUS
    angle = np.minimum(bent, math.pi / 2)
    left = np.maximum(DISTANCES - BEGIN - RADIUS * math.pi / 2, 0.0)
    points = np.stack([BEGIN + RADIUS * np.sin(angle), RADIUS * (1 - np.cos(angle)) + left], axis=1)
    straight = np.stack([DISTANCES, np.zeros_like(DISTANCES)], axis=1)
    return np.where((DISTANCES < BEGIN)[:, None] | (turn == 0), straight, points * [1, turn or 1]).astype(np.float32)


def seen(turn=-1, speed=3.0, other=(30.0, -2.6, -8.0), red=False):
    """What the driver observes; other: forward and to the right [m], velocity towards the car [m/s]."""
    others = np.zeros((6, 8), np.float32)
    forward, aside, velocity = other
    others[0] = 1, forward, aside, -1, 0, velocity - speed, 0, 2.4
    light = [4.0 if red else 100.0, red, 0, 0]
    return {
        "velocity": np.array([speed, 0.0]),
        "route": route(turn),
        "others": others,
        "next_light": np.array(light),
        "speed_limit": np.array([14.0]),
    }


@pytest.fixture
def driver():
    return ScriptedDriver(None, seed=0, noise=0.0)


@pytest.mark.parametrize("turn", [0, 1])
def test_driver_yields_to_oncoming_only_when_turning_left(driver, turn):
    assert driver.act(seen(turn))[1] > 0
    assert driver.act(seen(-1))[1] < 0


def test_driver_turns_before_distant_or_standing_traffic(driver):
    for other in ((58.0, -2.6, -5.0), (30.0, -2.6, 0.0), (-6.0, -2.6, -8.0)):
        assert driver.act(seen(other=other))[1] > 0


def test_driver_wait_is_bounded_excluding_red_lights(driver):
    waiting, at_red = seen(speed=0.0), seen(speed=0.0, red=True)
    for _ in range(2 * WAITING):
        driver.act(at_red)
    assert driver.act(waiting)[1] <= 0
    pedals = [driver.act(waiting)[1] for _ in range(WAITING + 1)]
    assert pedals[0] <= 0 < pedals[-1]
    driver.act(seen(turn=0))
    assert driver.act(waiting)[1] <= 0, "the next turn is another one"


def test_driver_stops_at_yellow_it_would_pass_late(driver):
    """Red before: it passed a yellow light at 12 m/s and braked for the bend behind the line, so that it crossed on red."""

    def pedal_at(left, speed, turn):
        observation = seen(turn, speed=speed, other=(60.0, 30.0, 0.0))
        bent = route(turn) if turn else np.stack([DISTANCES, np.zeros_like(DISTANCES)], axis=1).astype(np.float32)
        reach = np.maximum(DISTANCES - left, 0.0)
        if turn:  # straight to the line, and the bend behind it
            angle = np.minimum(reach / 8.0, math.pi / 2)
            beyond = np.maximum(reach - 8.0 * math.pi / 2, 0.0)
            bent = np.stack([np.minimum(DISTANCES, left) + 8.0 * np.sin(angle), 8.0 * (1 - np.cos(angle)) + beyond], axis=1)
        observation["route"] = bent.astype(np.float32)
        observation["next_light"] = np.array([left + 4.0, 0, 1, 0])
        driver.reset()
        return driver._at_lights(Seen(observation))

    assert pedal_at(22.0, 12.0, 0) == math.inf  # straight on: two seconds
    assert pedal_at(22.0, 12.0, 1) < 10.0  # a bend: it would take longer than the light is yellow
    assert pedal_at(6.0, 12.0, 1) == math.inf  # no brake is good enough
    assert pedal_at(40.0, 12.0, 0) < 13.0
    braking = seen(0, speed=12.0, other=(60.0, 30.0, 0.0)) | {"next_light": np.array([29.0, 0, 1, 0])}
    driver.reset()
    assert driver._at_lights(Seen(braking)) < math.inf
    slower = braking | {"next_light": np.array([24.5, 0, 1, 0]), "velocity": np.array([11.4, 0.0])}
    assert driver._at_lights(Seen(slower)) < math.inf  # it goes on to brake


def across(place, velocity, speed=10.0, light=100.0, turn=0):
    """What the driver observes with one car from the side; place and velocity in its own frame [m], [m/s]."""
    observation = seen(turn, speed=speed, other=(60.0, 30.0, 0.0)) | {"next_light": np.array([light, 0, 0, 1])}
    pace = math.hypot(*velocity)
    observation["others"][0] = 1, *place, velocity[0] / pace, velocity[1] / pace, velocity[0] - speed, velocity[1], 2.4
    return observation


def gives_way(driver, observation):
    """Return the speed that gives way to those who come across."""
    seen = Seen(observation)
    return driver._before_crossing(seen, driver._at_lights(seen))


def test_driver_gives_way_to_the_side_unless_a_light_holds_it(driver):
    """Red before: it looked 2 s ahead, and met a car that came across where there is no light."""
    assert gives_way(driver, across((25.0, -20.0), (0.0, 8.0))) < 10.0  # both in 2.5 s
    assert gives_way(driver, across((25.0, -20.0), (0.0, 8.0), light=12.0)) == math.inf
    assert gives_way(driver, across((25.0, 20.0), (0.0, 8.0))) == math.inf  # it goes away
    assert gives_way(driver, across((45.0, -5.0), (0.0, 8.0))) == math.inf  # gone before
    assert gives_way(driver, across((6.0, -8.0), (0.0, 8.0))) == math.inf  # no brake is good enough
    assert gives_way(driver, across((30.0, -3.5), (-9.9, 0.4))) == math.inf  # in the other lane


def test_driver_ignores_followers_and_sees_whole_motions(driver):
    """Red before: a follower's place in 2 s was an obstacle, and walkers between two looks were not."""
    follower = across((-8.0, 0.0), (13.0, 0.0))
    assert driver._behind(Seen(follower)) == math.inf
    assert driver._behind(Seen(across((12.0, 0.0), (4.0, 0.0)))) < 6.0
    walker = across((14.0, -1.0), (0.0, 9.0))  # in the way for the first half second alone, or not at any whole second
    walker["others"][0, 2], walker["others"][0, 6] = -4.5, 9.0
    assert driver._behind(Seen(walker)) < 10.0
    walker["others"][0, 2] = -25.0
    assert driver._behind(Seen(walker)) == math.inf


def test_driver_alone_drives_at_the_limit(driver):
    alone = seen(0, speed=13.0) | {"others": np.zeros((6, 8), np.float32)}
    assert driver._behind(Seen(alone)) == gives_way(driver, alone) == math.inf and driver.act(alone)[1] > 0
