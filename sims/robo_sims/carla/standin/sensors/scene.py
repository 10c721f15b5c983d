"""What stands on the ground, as boxes: gathered once a step, for all cameras and lidars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import YAW, Actor, Bodies, rows_of
from robo_sims.carla.standin.layouts import Tag

Floats = npt.NDArray[np.float64]
SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
"""Of the corners of a box."""
GREY = {Tag.BUILDING: (128, 128, 136), Tag.POLE: (90, 90, 90), Tag.STATIC: (60, 120, 200), Tag.PEDESTRIAN: (60, 20, 220)}
"""Colours of what has none of its own, as blue, green, red."""


@dataclass
class Boxes:
    """Boxes that stand upright: the columns of `numbers` are x, y, yaw [rad], half length, half width, bottom, top."""

    numbers: Floats
    tags: npt.NDArray[np.uint8]
    colours: npt.NDArray[np.uint8]
    """(n, 3): blue, green, red."""
    owners: npt.NDArray[np.int64]
    """Ids of actors; 0 for what is none."""
    halves: Floats = field(init=False)
    """(n, 3) [m]: half sizes."""
    middles: Floats = field(init=False)
    """(n, 3) [m]"""
    reach: Floats = field(init=False)
    """[m] radius of a sphere around the middle that holds the box."""
    turns: Floats = field(init=False)
    """(n, 2): cosine and sine of yaw."""
    corners: Floats = field(init=False)
    """(n, 8, 3) [m], in the order of SIGNS"""

    def __post_init__(self) -> None:
        numbers = self.numbers
        self.halves = np.stack([numbers[:, 3], numbers[:, 4], (numbers[:, 6] - numbers[:, 5]) / 2], axis=1)
        self.middles = np.stack([numbers[:, 0], numbers[:, 1], (numbers[:, 6] + numbers[:, 5]) / 2], axis=1)
        self.reach = np.linalg.norm(self.halves, axis=1)
        self.local = SIGNS * self.halves[:, None]
        self.turns, self.corners = np.zeros((len(self), 2)), np.zeros((len(self), 8, 3))
        self.moved(len(self))

    def moved(self, count: int) -> None:
        """Notes that x, y and yaw of the first boxes have changed."""
        numbers, turns, corners, local = (part[:count] for part in (self.numbers, self.turns, self.corners, self.local))
        np.cos(numbers[:, 2], turns[:, 0])
        np.sin(numbers[:, 2], turns[:, 1])
        cosine, sine = turns[:, 0, None], turns[:, 1, None]
        self.middles[:count, :2] = numbers[:, :2]
        corners[..., 0] = cosine * local[..., 0] - sine * local[..., 1]
        corners[..., 1] = sine * local[..., 0] + cosine * local[..., 1]
        corners[..., 2] = local[..., 2]
        corners += self.middles[:count, None]

    @classmethod
    def joined(cls, parts: Sequence[Boxes]) -> Boxes:
        """Returns all boxes of some sets."""
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "tags", "colours", "owners"))
        )

    def __len__(self) -> int:
        return len(self.tags)


def of_buildings(buildings: Floats) -> Boxes:
    """Returns the boxes of a map's buildings."""
    count = len(buildings)
    low = np.zeros((count, 1))
    numbers = np.concatenate(
        [buildings[:, :2], np.radians(buildings[:, 2:3]), buildings[:, 3:5], low, buildings[:, 5:]], axis=1
    )
    shades = 100 + (np.arange(count) * 37) % 80
    colours = np.stack([shades, shades, shades + 10], axis=1).astype(np.uint8)
    return Boxes(numbers, np.full(count, Tag.BUILDING, np.uint8), colours, np.zeros(count, np.int64))


class Scene:
    """The boxes of a world."""

    def __init__(self, buildings: Floats, others: Boxes) -> None:
        self.still = Boxes.joined([of_buildings(buildings), others])
        self.reindex(Bodies())

    def reindex(self, bodies: Bodies) -> None:
        """Notes rows, sizes and colours anew."""
        solid = [actor for actor in bodies if actor.is_solid]
        self.rows = rows_of(solid)
        tags = np.array([actor.tag for actor in solid], np.uint8)
        colours = np.array([_colour(actor) for actor in solid], np.uint8).reshape(-1, 3)
        sizes = [(0.0, 0.0, 0.0, *actor.box.extent[:2], 0.0, 2 * actor.box.extent[2]) for actor in solid]
        movable = Boxes(np.array(sizes).reshape(-1, 7), tags, colours, np.array([actor.id for actor in solid], np.int64))
        self.count = len(solid)
        self.index = {actor.id: number for number, actor in enumerate(solid)}
        self.boxes = Boxes.joined([movable, self.still])

    def step(self, bodies: Bodies, last_colours: npt.NDArray[np.uint8]) -> None:
        """Notes where everything is, and the colours of the last of what stands still."""
        if len(last_colours):
            self.boxes.colours[-len(last_colours) :] = last_colours
        motion, numbers = bodies.motion[self.rows], self.boxes.numbers[: self.count]
        numbers[:, :2], numbers[:, 2] = motion[:, :2], motion[:, YAW] * (math.pi / 180)
        self.boxes.moved(self.count)


def _colour(actor: Actor) -> tuple[int, ...]:
    try:
        red, green, blue = (int(part) for part in actor.attributes.get("color", "").split(","))
        return blue % 256, green % 256, red % 256
    except ValueError:
        return GREY.get(Tag(actor.tag) if actor.tag else Tag.STATIC, (100, 100, 100))
