"""Pictures for people: the bird's-eye view in colours, and what is told below it."""

import math

import numpy as np
import pytest

from robo_sims.carla import birdseye, status_text
from robo_sims.carla.environment import SESSION_LOST, TIME_LIMIT
from robo_sims.carla.rewards import Situation
from robo_sims.carla.roads import LaneOfMap, Roads
from robo_sims.carla.routes import Route, RoutePosition
from robo_sims.carla.scene import GREEN, RED, Ego, Scene
from robo_sims.carla.termination import GOAL, INFRACTIONS


def lane(y, heading):
    """A lane of 50 m along x, 3.5 m wide."""
    x = np.arange(50.0)
    rows = [
        x if heading == 0.0 else x[::-1],
        np.full(50, y),
        np.zeros(50),
        np.full(50, heading),
        np.full(50, 3.5),
        np.zeros(50),
    ]
    return LaneOfMap(np.stack(rows, axis=1), (), (True, True), (True, True))


ROADS = Roads([lane(1.75, 0.0), lane(-1.75, math.pi)])


def ego(y=1.75, yaw=0.0, speed=8.3):
    return Ego(20.0, y, yaw, speed, 0.0, 0.0, 0.0, 0.0, 13.9)


def situation(car, lights=(), is_oncoming=False):
    scene, place = Scene(0, car, np.zeros((0, 8)), list(lights)), RoutePosition(20.0, 0.0, 0.0, 3.5, False)
    return Situation(scene, place, 0.37, None, is_oncoming=is_oncoming)


@pytest.mark.parametrize(
    ("y", "yaw", "against"),
    [
        (1.75, 0.0, False),
        (-1.75, math.pi, False),
        (-1.75, 0.0, True),
        (1.75, 3.0, True),
        (1.75, 2 * math.pi + 0.3, False),
        (30.0, 0.0, False),
    ],
)
def test_roads_know_the_wrong_lane(y, yaw, against):
    assert ROADS.is_oncoming(20.0, y, yaw) is against


def test_film_shows_how_far_each_needs_to_stop():
    route = Route(np.stack([np.arange(50.0), np.full(50, 1.75), *np.zeros((4, 50))], axis=1))
    others = np.array([[30.0, -1.75, math.pi, -4.0, 0.0, 2.4, 1.0, 0.0], [35.0, -1.75, math.pi, 0.0, 0.0, 2.4, 1.0, 0.0]])
    scene = Scene(0, ego(speed=5.0), others)
    painter = birdseye.BirdsEye(ROADS, route, 80)
    shown = birdseye.coloured(painter.draw(scene, 20.0, 20), (2.4, 1.0), 2.0)
    painter.draw_stopping_ways(shown, scene)
    way = (shown == birdseye.WAY).all(2)
    ahead = np.flatnonzero(way[:, 40])
    assert len(ahead) == pytest.approx(2 * 10, abs=2), "5 m for a second, and 5 m to brake from 5 m/s"
    theirs = np.flatnonzero(way[:, 33])
    assert len(theirs) == pytest.approx(2 * (4 + 3.2), abs=2) and not way[:, [20, 60]].any()


def test_film_tells_limit_light_sign_pedals_and_wrong_lane():
    told, background = status_text.lines(situation(ego(), [(5.0, RED), (43.0, RED)]), 0.4, "")
    assert told == ["37 % of the route, 8.3 of 13.9 m/s, throttle 40 %", "red light in 23 m"]
    assert background == status_text.DRIVING
    told, background = status_text.lines(situation(ego(y=-1.75), is_oncoming=True), -1.0, "")
    assert told[0].endswith("brake 100 %") and background == status_text.AGAINST
    assert told[1] == f"no light ahead, {status_text.WRONG_LANE}"
    at_sign = situation(ego(), [(30.0, GREEN)])
    at_sign.scene.signs.extend([(15.0, "traffic.stop"), (41.0, "traffic.stop")])
    assert status_text.lines(at_sign, 0.0, "")[0][1] == "green light in 10 m, stop sign in 21 m"


@pytest.mark.parametrize("ended", [GOAL, *INFRACTIONS, SESSION_LOST, TIME_LIMIT])
def test_film_tells_in_words_how_it_ended(ended):
    told, background = status_text.lines(situation(ego()), 0.0, ended)
    assert told[1].startswith("END: ") and "_" not in told[1]
    assert background == (status_text.DONE if ended == GOAL else status_text.FAILED)


def test_birdseye_shows_the_front_of_the_car_and_walkers():
    picture = np.zeros((64, 64, len(birdseye.CHANNELS)), np.uint8)
    picture[20:22, 40:42, birdseye.WALKER_CHANNEL] = 255
    shown = birdseye.coloured(picture, (2.45, 1.06), birdseye.SCALE)
    own = [tuple(pixel) for pixel in shown[43:53, 32].tolist()]
    assert own[0] == birdseye.NOSE and own[-1] == birdseye.OWN and own.count(birdseye.NOSE) < own.count(birdseye.OWN)
    walkers = (shown == birdseye.COLOURS[birdseye.WALKER_CHANNEL]).all(-1)
    assert walkers.sum() == 16 and walkers[19:23, 39:43].all()
