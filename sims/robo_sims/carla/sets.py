"""Observation layout "sets": cars, walkers, lights and signs as sets, and the others in the frame of the route.

A set has one row for each member, which begins with 1, in no order that a network should rely on; rows of zeros are padding.
Lengths are in metres: `network.encoder: sets` reads them as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import ArraySpec
from robo_sims.carla.observations import FAR, MOTION, SIGHT, Arrays, motion, nearest
from robo_sims.carla.rewards import Situation
from robo_sims.carla.roads import HEADING, SPACING, Floats
from robo_sims.carla.routes import Route
from robo_sims.carla.scene import GREEN, HALF_WIDTH, RED, SIGNS, VX, VY, WALKER, YELLOW

CARS, WALKERS, SIGNALS = 8, 4, 2
"""Rows of the sets: the nearest cars and walkers; the next lights, and the next signs."""
LOOKS = np.array([0.0, 1.0, 2.0])
"""Times [s] ahead for which other actors' positions are predicted, at constant velocity."""
BACK, FORWARD = 25, 85
"""Distance [m] behind and ahead of the last position in which the nearest route point is searched."""

_MEMBER = (
    "1, place [m] forward and to the right, cosine and sine of its heading, velocity [m/s] forward and to the right relative "
    "to the car, half length, half width [m], then the distances [m] along the route, from the car's middle, and to the right "
    "of it: now, in 1 s and in 2 s"
)
SETS = (
    *MOTION,
    ArraySpec(
        "cars",
        (CARS, 15),
        unit="mixed",
        frame="ego",
        role="object",
        meaning=f"set of the {CARS} nearest vehicles within {SIGHT:g} m: {_MEMBER}",
    ),
    ArraySpec(
        "walkers",
        (WALKERS, 15),
        unit="mixed",
        frame="ego",
        role="object",
        meaning=f"set of the {WALKERS} nearest walkers within {SIGHT:g} m: {_MEMBER}",
    ),
    ArraySpec(
        "lights",
        (SIGNALS, 5),
        low=0.0,
        high=FAR,
        unit="mixed",
        frame="ego",
        role="object",
        meaning=f"set of the next {SIGNALS} traffic lights on the route within {FAR:g} m: 1, distance [m] to its stop line, "
        "whether it is red, yellow, green",
    ),
    ArraySpec(
        "signs",
        (SIGNALS, 2 + len(SIGNS)),
        low=0.0,
        high=FAR,
        unit="mixed",
        frame="ego",
        role="object",
        meaning=f"set of the next {SIGNALS} signs on the route within {FAR:g} m: 1, distance [m] to its line, whether it says "
        + ", ".join(SIGNS.values()),
    ),
)


def sets(situation: Situation, route: Route, controls: npt.NDArray[np.float64]) -> Arrays:
    """Return the observations of the layout "sets": cars, walkers, lights, signs, and the arrays of `motion` and the route.

    controls: the last action.
    """
    scene, s = situation.scene, situation.place.s
    found = motion(situation, route, controls)
    walks = scene.others[:, WALKER] > 0
    are_cars = not walks.any()  # then no copy is made of them
    found["cars"] = _members(situation, route, scene.others if are_cars else scene.others[~walks], CARS)
    found["walkers"] = _members(situation, route, scene.others[:0] if are_cars else scene.others[walks], WALKERS)
    lights = [[1.0, stop - s, state == RED, state == YELLOW, state == GREEN] for stop, state in scene.lights]
    found["lights"] = _ahead(lights, 5)
    signs = [[1.0, stop - s, *(kind == each for each in SIGNS)] for stop, kind in scene.signs]
    found["signs"] = _ahead(signs, 2 + len(SIGNS))
    return found


def along_route(route: Route, s: float, places: Floats) -> Floats:
    """Return the distances (k, 2) [m] of places (k, 2): along the route from s [m] on, and to the right of it."""
    low = min(max(int(s / SPACING) - BACK, 0), len(route.points) - 2)
    points = route.points[low : int(s / SPACING) + FORWARD]
    closest = np.argmin((places[:, :1] - points[:, 0]) ** 2 + (places[:, 1:] - points[:, 1]) ** 2, axis=1)
    chosen = points[closest]
    dx, dy = places[:, 0] - chosen[:, 0], places[:, 1] - chosen[:, 1]
    cosine, sine = np.cos(chosen[:, HEADING]), np.sin(chosen[:, HEADING])
    return np.stack([(low + closest) * SPACING - s + dx * cosine + dy * sine, dy * cosine - dx * sine], axis=1)


def _members(situation: Situation, route: Route, others: Floats, count: int) -> npt.NDArray[np.float32]:
    found = np.zeros((count, 15), np.float32)
    if not len(others):
        return found
    ego = situation.scene.ego
    chosen, rows = nearest(ego, others, count)
    if kept := len(chosen):
        found[:kept, :8], found[:kept, 8] = rows, chosen[:, HALF_WIDTH]
        later = chosen[:, None, :2] + LOOKS[:, None] * chosen[:, None, VX : VY + 1]
        found[:kept, 9:] = along_route(route, situation.place.s, later.reshape(-1, 2)).reshape(kept, -1)
    return found


def _ahead(signals: list[list[float]], width: int) -> npt.NDArray[np.float32]:
    """Return the next signals, of rows with the distance in the second column, in order along the route."""
    found = np.zeros((SIGNALS, width), np.float32)
    kept = [row for row in signals if 0.0 <= row[1] < FAR][:SIGNALS]
    if kept:
        found[: len(kept)] = kept
    return found
