"""What films tell below the picture from above: progress, speed and its limit, the next light, driving against the lane."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from robo_sims.carla.judge import GOAL
from robo_sims.carla.rewards import Situation
from robo_sims.carla.roads import HEADING, SPACING, WIDTH, Floats, Roads, X, Y
from robo_sims.carla.scene import GREEN, RED, YELLOW, Ego

LIGHTS = {RED: "red", YELLOW: "yellow", GREEN: "green"}
AHEAD = 60.0
"""[m] within which a light is told."""
WRONG_LANE = "WRONG LANE"
DRIVING, DONE, FAILED, AGAINST = (30, 30, 36), (30, 110, 60), (150, 40, 40), (150, 100, 20)
"""Backgrounds of the text."""


def lines(situation: Situation, roads: Roads, ended: str) -> tuple[list[str], tuple[int, int, int]]:
    """Return two lines of text and their background; ended: why the episode is over, "" while it is not."""
    ego, is_wrong = situation.scene.ego, is_against(roads, situation.scene.ego)
    done = f"{100 * situation.completion:.0f} % of the route, {ego.speed:.1f} of {ego.limit:.1f} m/s"
    parts = [light_ahead(situation), WRONG_LANE if is_wrong else "", ended]
    background = AGAINST if is_wrong else DRIVING
    if ended:
        background = DONE if ended == GOAL else FAILED
    return [done, ", ".join(part for part in parts if part)], background


def light_ahead(situation: Situation) -> str:
    """Return the next light on the route and its distance."""
    for stop, state in situation.scene.lights:
        if 0.0 <= stop - situation.place.s < AHEAD and state in LIGHTS:
            return f"{LIGHTS[state]} light in {stop - situation.place.s:.0f} m"
    return "no light ahead"


def is_against(roads: Roads, ego: Ego) -> bool:
    """Return whether all lanes below the car's middle lead the other way; False beside the road."""
    points = _points(roads)
    dx, dy = ego.x - points[:, X], ego.y - points[:, Y]
    cosine, sine = np.cos(points[:, HEADING]), np.sin(points[:, HEADING])
    below = (np.abs(dx * cosine + dy * sine) <= SPACING) & (np.abs(dy * cosine - dx * sine) <= points[:, WIDTH] / 2)
    headings = points[below, HEADING] - ego.yaw
    return bool(len(headings)) and not bool((np.cos(headings) > math.cos(math.pi / 2)).any())


@lru_cache(maxsize=4)
def _points(roads: Roads) -> Floats:
    return np.concatenate([lane.points for lane in roads.lanes])
