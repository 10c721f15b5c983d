"""Checks of numbers and poses from clients; a pose is [[x, y, z], [pitch, yaw, roll]] in m and degrees."""

from __future__ import annotations

import math
from typing import Any

from carla_standin.errors import Refused

Pose = list[list[float]]
FARTHEST = 1e6


def numbers(values: Any, count: int, what: str, most: float = FARTHEST) -> list[float]:
    """Return a list of finite numbers, none beyond `most`; raises Refused for anything else."""
    try:
        found = [float(value) for value in values]
    except (TypeError, ValueError):
        found = []
    if len(found) < count or not all(-most <= value <= most for value in found[:count]):  # nan is not
        raise Refused(f"{what} is no list of {count} finite numbers.", got=values)
    return found[:count]


def pose(value: Any) -> Pose:
    """Return a client's value as a pose [[x, y, z], [pitch, yaw, roll]]; raises Refused unless it is one."""
    if not isinstance(value, list) or len(value) < 2:
        raise Refused("A transform is no pair of location and rotation.", got=value)
    return [numbers(value[0], 3, "A location"), numbers(value[1], 3, "A rotation")]


def combined(parent: Any, relative: Pose) -> Pose:
    """Return the world pose of an actor from its pose relative to the actor that carries it.

    parent: x, y, z [m], pitch, yaw, roll [degree] of the carrier; only its yaw turns the relative position.
    """
    x, y, z, pitch, yaw, roll = (float(value) for value in parent)
    (rx, ry, rz), (rpitch, ryaw, rroll) = relative
    cosine, sine = math.cos(math.radians(yaw)), math.sin(math.radians(yaw))
    return [[x + cosine * rx - sine * ry, y + sine * rx + cosine * ry, z + rz], [pitch + rpitch, yaw + ryaw, roll + rroll]]
