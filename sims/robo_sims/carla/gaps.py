"""Edge-to-edge distances between the ego vehicle and other actors."""

from __future__ import annotations

import math

import numpy as np

from robo_sims.carla.boxes import corners
from robo_sims.carla.rewards import EGO_SIZE
from robo_sims.carla.roads import Floats
from robo_sims.carla.scene import HALF_LENGTH, HALF_WIDTH, YAW, Ego, X, Y

HALF_WAY = EGO_SIZE[1] + 0.5
"""[m] distance from the route within which an actor is an obstacle; the next lane is farther away."""
LOOK, FINE = 30, 0.5
"""[m] length and point spacing of the route ahead."""


def way_to(line: Floats, other: Floats) -> float:
    """Return the distance along the route to an obstacle [m]; infinite if the actor is not in the way."""
    apart = np.hypot(*(line[:, None] - edges_of(other)).transpose(2, 0, 1)).min(1)
    inside = np.flatnonzero(apart < HALF_WAY)
    return float(inside[0] * FINE + HALF_WAY) if len(inside) else math.inf


def gap(ego: Ego, other: Floats) -> float:
    """Return the distance between two boxes [m], sampled on their edges; 0 if one contains the other."""
    own = corners(np.array([[ego.x, ego.y]]), np.array([ego.yaw]), *(np.array([side]) for side in EGO_SIZE))[0]
    edges = [along(own), edges_of(other)]
    apart = float(np.hypot(*(edges[0][:, None] - edges[1]).transpose(2, 0, 1)).min())
    inside = np.abs(ego.positions_in_ego(edges[1])) < EGO_SIZE
    return 0.0 if inside.all(1).any() else apart


def edges_of(other: Floats) -> Floats:
    """Return points (n, 2) on the edges of an actor's box."""
    return along(corners(other[None, [X, Y]], other[None, YAW], other[None, HALF_LENGTH], other[None, HALF_WIDTH])[0])


def along(box: Floats) -> Floats:
    """Return points (n, 2) on the edges between corners (4, 2)."""
    points: Floats = (box + np.linspace(0.0, 1.0, 9)[:, None, None] * (np.roll(box, 1, 0) - box)).reshape(-1, 2)
    return points
