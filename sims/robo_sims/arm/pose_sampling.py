"""Random states of the arm tasks without simulation: objects, hand pose and grasp. A task says which (`ArmTask.scene`, `pose`).

A scene has the objects of its task, and half of the scenes one more of each kind in another colour, so that the words matter.
Half of the poses are close to the objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robo_sims.arm.captions import COLOURS
from robo_sims.arm.control import MAX_YAW, WORKSPACE
from robo_sims.arm.physics import Array

START = np.array([[0.38, -0.12, 0.18], [0.54, 0.12, 0.30]])
"""[m] range of the gripper's start position, frame base."""
START_YAW = 0.4
"""Largest yaw [rad] of the hand in either direction at the start of an episode."""
SEEN = np.array([[0.30, -0.24, 0.012], [0.64, 0.24, 0.36]])
"""[m] part of the workspace in which the front camera sees the fingers."""
CAMERA = np.array([1.15, 0.0, 0.62])
"""[m] position of the front camera."""
OWN_COLOUR = 0.4
"""Share of caption scenes whose first object has the colour that it has in the task."""


@dataclass(frozen=True)
class SceneObject:
    """Coloured object with a pose."""

    kind: str
    colour: str
    position: Array
    """Position (3,) [m] of the object, frame base."""
    yaw: float = 0.0
    """Yaw of the object [rad]."""


@dataclass(frozen=True)
class Pose:
    """Pose of a downward hand, and the objects of the scene."""

    gripper: Array
    """(3,) [m] target of the point between the finger pads, frame base"""
    yaw: float
    """Yaw of the gripper [rad]."""
    opening: float
    """Distance between the fingers [m]."""
    things: tuple[SceneObject, ...] = field(default=())


Random = np.random.Generator


def several(
    kind: str, own: str, region: Array, random: Random, *, apart: float, height: float | None = None
) -> tuple[SceneObject, ...]:
    """Return one or two objects of a kind at random places in a region.

    Args:
        kind: Kind of the objects, such as "cube".
        own: Colour of the task's own object.
        region: Lowest and highest position [m].
        random: Source of the random numbers.
        apart: [m] Least distance between the two objects.
        height: [m] Height of their middles; None to draw it from the region.
    """
    names = [*random.permutation([*COLOURS])]
    if random.random() < OWN_COLOUR:
        names = [own, *(name for name in names if name != own)]
    count = 1 + int(random.random() < 0.5)
    while True:
        drawn = [np.asarray(random.uniform(*region)) for _ in range(count)]
        places = [np.array([*place[:2], place[-1] if height is None else height]) for place in drawn]
        if count == 1 or np.linalg.norm(places[0] - places[1]) >= apart:
            return tuple(
                SceneObject(kind, str(name), place, random.uniform(-np.pi, np.pi))
                for name, place in zip(names, places, strict=False)
            )


def one_of(things: Sequence[SceneObject], random: Random) -> SceneObject:
    """Return one of some objects."""
    return things[int(random.integers(len(things)))]


def anywhere(random: Random) -> Array:
    """Return a random position (3,) [m] of the gripper.

    In nine of ten cases the camera sees the fingers there; else it is anywhere in the workspace.
    """
    return np.asarray(random.uniform(*(SEEN if random.random() < 0.9 else WORKSPACE)))


def near(place: Array, radius: float, random: Random) -> Array:
    """Return a random position (3,) [m] within `radius` [m] of another, moved into the workspace if need be."""
    way = random.normal(size=3)
    return np.clip(place + random.uniform(0, radius) * way / np.linalg.norm(way), WORKSPACE[0], WORKSPACE[1])


def in_line(place: Array, random: Random) -> Array:
    """Return a position in line with another as seen from the camera, which only its size distinguishes."""
    way = CAMERA - place
    share = random.uniform(-0.1, 0.4)
    return np.clip(place + share * way + random.normal(0, 0.015, 3), WORKSPACE[0], WORKSPACE[1])


def turn(random: Random) -> float:
    """Return a yaw [rad], mostly small."""
    return float(np.clip(random.normal(0, 0.6), -MAX_YAW, MAX_YAW))


def along(yaw: float, random: Random) -> float:
    """Return the yaw of fingers along the faces of a cube, closest to straight."""
    return float((yaw + np.pi / 4) % (np.pi / 2) - np.pi / 4 + random.normal(0, 0.05))
