"""Rotated boxes in the plane: corners and overlap."""

from __future__ import annotations

import math

import numpy as np

from robo_sims.carla.roads import Floats
from robo_sims.carla.scene import HALF_LENGTH, HALF_WIDTH, YAW, X, Y

CORNERS = np.array([(1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)])


def corners(places: Floats, yaw: Floats, half_length: Floats, half_width: Floats) -> Floats:
    """Returns the corners (n, 4, 2) of boxes at places (n, 2)."""
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
