"""Boxes of all bodies on the ground, updated once a step for all cameras and lidars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from carla_standin.actors import YAW, Actor, Bodies, Z
from carla_standin.layouts import Tag
from carla_standin.sensors.paint import Bgr, Paints, coat_of, colour_of

Floats = npt.NDArray[np.float64]
SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
"""Signs (8, 3) of the corners of a box along its axes."""
SKIN = (130, 165, 225), (70, 100, 160), (45, 65, 110)
CLOTHES = (60, 20, 220), (40, 160, 250), (200, 210, 215), (150, 60, 120), (70, 150, 60), (190, 120, 30)
TROUSERS = (90, 50, 35), (40, 40, 40), (60, 75, 95)
"""Colours of walkers' trousers (blue, green, red); an actor's place in the order of spawning chooses one."""
LEGS, CHEST = 0.45, 0.83
"""Shares of a walker's height at the top of the legs and the bottom of the head."""


@dataclass(frozen=True)
class Part:
    """A box of an actor, in its frame."""

    half_length: float
    """[m], as are all sizes."""
    half_width: float
    bottom: float
    top: float
    colour: Bgr


@dataclass
class Boxes:
    """Boxes that stand upright: the columns of `numbers` are x, y, yaw [rad], half length, half width, bottom, top."""

    numbers: Floats
    tags: npt.NDArray[np.uint8]
    colours: npt.NDArray[np.uint8]
    """(n, 3): blue, green, red."""
    owners: npt.NDArray[np.int64]
    """Id of each box's actor, (n,); 0 for objects of the map."""
    halves: Floats = field(init=False)
    """(n, 3) [m]: half sizes."""
    middles: Floats = field(init=False)
    """Middle of each box, (n, 3) [m], world frame."""
    reach: Floats = field(init=False)
    """Radius [m] of the sphere around the box's middle that contains the box."""
    turns: Floats = field(init=False)
    """Cosine and sine of each box's yaw, (n, 2)."""
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
        """Recompute what follows from the poses (axes, middles, corners) of the first `count` boxes, which have moved."""
        numbers, turns, corners, local = (part[:count] for part in (self.numbers, self.turns, self.corners, self.local))
        np.cos(numbers[:, 2], turns[:, 0])
        np.sin(numbers[:, 2], turns[:, 1])
        cosine, sine = turns[:, 0, None], turns[:, 1, None]
        self.middles[:count, :2] = numbers[:, :2]
        self.middles[:count, 2] = (numbers[:, 5] + numbers[:, 6]) / 2
        corners[..., 0] = cosine * local[..., 0] - sine * local[..., 1]
        corners[..., 1] = sine * local[..., 0] + cosine * local[..., 1]
        corners[..., 2] = local[..., 2]
        corners += self.middles[:count, None]

    @classmethod
    def joined(cls, parts: Sequence[Boxes]) -> Boxes:
        """Return the boxes of all parts, in their order."""
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "tags", "colours", "owners"))
        )

    def __len__(self) -> int:
        return len(self.tags)


def of_buildings(buildings: Floats) -> Boxes:
    """Return the boxes of a map's buildings."""
    count = len(buildings)
    low = np.zeros((count, 1))
    numbers = np.concatenate(
        [buildings[:, :2], np.radians(buildings[:, 2:3]), buildings[:, 3:5], low, buildings[:, 5:]], axis=1
    )
    shades = 100 + (np.arange(count) * 37) % 80
    colours = np.stack([shades, shades, shades + 10], axis=1).astype(np.uint8)
    return Boxes(numbers, np.full(count, Tag.BUILDING, np.uint8), colours, np.zeros(count, np.int64))


class Scene:
    """All boxes of a world that sensors see: still ones, and those of actors."""

    def __init__(self, buildings: Floats, others: Boxes) -> None:
        self.still = Boxes.joined([of_buildings(buildings), others])
        self.reindex(Bodies())

    def reindex(self, bodies: Bodies) -> None:
        """Find the boxes of all solid bodies and their colours again, after actors came or went."""
        solid = [actor for actor in bodies if actor.is_solid]
        parts = [(actor, part) for actor in solid for part in parts_of(actor)]
        self.actors = [actor for actor, _ in parts]
        """Actor of each movable box."""
        self.rows = np.array([actor.row for actor in self.actors], np.intp)
        tags = np.array([actor.tag for actor in self.actors], np.uint8)
        colours = np.array([part.colour for _, part in parts], np.uint8).reshape(-1, 3)
        sizes = [(0.0, 0.0, 0.0, part.half_length, part.half_width, part.bottom, part.top) for _, part in parts]
        numbers = np.array(sizes).reshape(-1, 7)
        self.heights = numbers[:, 5:].copy()
        """[m] Heights of bottoms and tops above the origins of their actors."""
        movable = Boxes(numbers, tags, colours, np.array([actor.id for actor in self.actors], np.int64))
        self.count = len(parts)
        self.index: dict[int, slice] = {}
        """Id of an actor -> numbers of its boxes."""
        for number, actor in enumerate(self.actors):
            begin = self.index[actor.id].start if actor.id in self.index else number
            self.index[actor.id] = slice(begin, number + 1)
        self.boxes = Boxes.joined([movable, self.still])
        self.coats = [coat_of(actor.type_id, actor.tag) for actor in self.actors]
        self.paints = [Paints(part.colour) for _, part in parts]

    def step(self, bodies: Bodies, last_colours: npt.NDArray[np.uint8]) -> None:
        """Update the poses of movable boxes, and the colours of the last immovable ones."""
        if len(last_colours):
            self.boxes.colours[-len(last_colours) :] = last_colours
        motion, numbers = bodies.motion[self.rows], self.boxes.numbers[: self.count]
        numbers[:, :2], numbers[:, 2] = motion[:, :2], motion[:, YAW] * (math.pi / 180)
        np.add(self.heights, motion[:, Z, None], out=numbers[:, 5:])
        self.boxes.moved(self.count)


def parts_of(actor: Actor) -> list[Part]:
    """Return the boxes of which an actor consists: one for a vehicle or prop; legs, trunk and head for a walker."""
    length, width, height = actor.box.extent
    bottom = actor.box.centre[2] - height
    if actor.tag != Tag.PEDESTRIAN:
        return [Part(length, width, bottom, bottom + 2 * height, colour_of(actor.type_id, actor.attributes.get("color", "")))]
    knees, neck = bottom + LEGS * 2 * height, bottom + CHEST * 2 * height
    trousers, shirt, skin = (
        colours[actor.place * step % len(colours)] for colours, step in ((TROUSERS, 2), (CLOTHES, 5), (SKIN, 1))
    )
    return [
        Part(0.5 * length, 0.7 * width, bottom, knees, trousers),
        Part(0.7 * length, width, knees, neck, shirt),
        Part(0.5 * length, 0.5 * width, neck, bottom + 2 * height, skin),
    ]
