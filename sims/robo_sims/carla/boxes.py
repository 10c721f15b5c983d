"""Rotated boxes in the plane: corners, overlap, gaps between actors."""

from __future__ import annotations

import math

import numpy as np

from robo_sims.carla.roads import Floats
from robo_sims.carla.scene import EGO_SIZE, HALF_LENGTH, HALF_WIDTH, YAW, Ego, X, Y

CORNERS = np.array([(1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)])
HALF_WAY = EGO_SIZE[1] + 0.5
"""[m] distance from the route within which an actor is an obstacle; the next lane is farther away."""
LOOK, FINE = 30, 0.5
"""Length [m] of the stretch of route ahead that is searched for obstacles, and distance [m] between its points."""


def corners(places: Floats, yaw: Floats, half_length: Floats, half_width: Floats) -> Floats:
    """Return the corners (n, 4, 2) of boxes at positions (n, 2)."""
    cosine, sine = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    forward, aside = CORNERS[:, 0] * half_length[:, None], CORNERS[:, 1] * half_width[:, None]
    offsets = np.stack([forward * cosine - aside * sine, forward * sine + aside * cosine], axis=2)
    return places[:, None] + offsets


def any_overlap(box: tuple[float, float, float, float, float], others: Floats) -> bool:
    """Return True if a box (x, y, yaw, half length, half width) overlaps a row of a scene (separating axes)."""
    x, y, yaw, half_length, half_width = box
    dx, dy = others[:, X] - x, others[:, Y] - y
    turned = others[:, YAW] - yaw
    cosine, sine = np.abs(np.cos(turned)), np.abs(np.sin(turned))
    length, width = others[:, HALF_LENGTH], others[:, HALF_WIDTH]
    touching = np.ones(len(others), np.bool_)
    own, theirs = np.full(len(others), yaw), others[:, YAW]
    quarter = math.pi / 2
    for axis, reach in (
        (own, half_length + length * cosine + width * sine),
        (own + quarter, half_width + length * sine + width * cosine),
        (theirs, length + half_length * cosine + half_width * sine),
        (theirs + quarter, width + half_length * sine + half_width * cosine),
    ):
        touching &= np.abs(dx * np.cos(axis) + dy * np.sin(axis)) < reach
    return bool(touching.any())


def way_to(line: Floats, other: Floats) -> float:
    """Return the distance [m] along the route to an actor; infinite if the actor is not in the way.

    Args:
        line: (n, 2) [m] Points of the route ahead, FINE apart.
        other: Row of the actor in `Scene.others`.
    """
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
