"""Collisions of oriented boxes on the ground: whoever a client drives, against all that is solid.

Cars that drive themselves avoid each other and are not tested against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import VX, VY, YAW, Actor, Bodies, X, Y, rows_of
from robo_sims.carla.standin.vehicles import Driven, model_of

Floats = npt.NDArray[np.float64]
BUILDING = Actor(0, "static.building", {}, [0, "static.building", []])
"""What the client sees of a building that it hits."""


@dataclass(frozen=True)
class Rectangle:
    """A box seen from above; yaw in radians."""

    x: float
    y: float
    yaw: float
    half_length: float
    half_width: float

    @property
    def axes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Returns its two directions."""
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        return (cosine, sine), (-sine, cosine)

    def reach(self, direction: tuple[float, float]) -> float:
        """Returns half of its extent along a direction."""
        first, second = self.axes
        return self.half_length * abs(_dot(first, direction)) + self.half_width * abs(_dot(second, direction))


def _dot(first: tuple[float, float], second: tuple[float, float]) -> float:
    return first[0] * second[0] + first[1] * second[1]


def overlap(one: Rectangle, other: Rectangle) -> tuple[float, tuple[float, float]] | None:
    """Returns how deep two rectangles lie in each other, and the direction that parts them, from the other to the one."""
    best: tuple[float, tuple[float, float]] | None = None
    offset = (one.x - other.x, one.y - other.y)
    for axis in (*one.axes, *other.axes):  # the separating axis theorem
        along = _dot(offset, axis)
        depth = one.reach(axis) + other.reach(axis) - abs(along)
        if depth <= 0:
            return None
        if best is None or depth < best[0]:
            sign = 1.0 if along >= 0 else -1.0
            best = depth, (sign * axis[0], sign * axis[1])
    return best


@dataclass(frozen=True)
class Hit:
    """One actor's view of a collision."""

    actor: Actor
    other: Actor
    impulse: tuple[float, float, float]
    """[N s] on the actor."""


class Collisions:
    """All that is solid, with the sizes that a step needs."""

    def __init__(self, buildings: Floats) -> None:
        self.buildings = buildings
        self.building_radius = np.hypot(buildings[:, 3], buildings[:, 4])
        self.reindex(Bodies(), ())

    def reindex(self, bodies: Bodies, groups: Sequence[Driven]) -> None:
        """Notes rows and sizes anew."""
        self.solid = [actor for actor in bodies if actor.is_solid]
        self.rows = rows_of(self.solid)
        self.radius = np.array([math.hypot(*actor.box.extent[:2]) for actor in self.solid])
        self.group = {actor: group for group in groups for actor in group.actors}
        self.hitters = np.array([number for number, actor in enumerate(self.solid) if actor in self.group], np.intp)

    def step(self, bodies: Bodies) -> list[Hit]:
        """Parts what overlaps, takes the speed of approach, and returns who hit what."""
        if not len(self.hitters):
            return []
        places = bodies.motion[self.rows][:, [X, Y]]
        hits: list[Hit] = []
        for first, second in self._near(places):
            hits += self._between(bodies, self.solid[first], self.solid[second])
        if len(self.buildings):
            for first, building in self._near_buildings(places):
                hits += self._with_building(bodies, self.solid[first], self.buildings[building])
        return hits

    def _near(self, places: Floats) -> Iterator[tuple[int, int]]:
        if len(self.solid) < 2:
            return
        offset = places[self.hitters, None] - places
        reach = self.radius[self.hitters, None] + self.radius
        close = np.einsum("ijk,ijk->ij", offset, offset) < reach * reach
        close[np.arange(len(self.hitters)), self.hitters] = False
        for number, second in zip(*np.nonzero(close), strict=True):
            first = int(self.hitters[number])
            if first < second or self.solid[second] not in self.group:  # a pair of two drivers once
                yield first, int(second)

    def _near_buildings(self, places: Floats) -> Iterator[tuple[int, int]]:
        offset = places[self.hitters, None] - self.buildings[:, :2]
        reach = self.radius[self.hitters, None] + self.building_radius
        for number, building in zip(*np.nonzero(np.einsum("ijk,ijk->ij", offset, offset) < reach * reach), strict=True):
            yield int(self.hitters[number]), int(building)

    def _between(self, bodies: Bodies, first: Actor, second: Actor) -> Iterator[Hit]:
        found = overlap(rectangle(bodies, first), rectangle(bodies, second))
        if found is None:
            return
        depth, normal = found
        masses = [model_of(actor).mass if actor in self.group else math.inf for actor in (first, second)]
        share = 1.0 if masses[1] == math.inf else 0.5
        approach = _dot(self._velocity(bodies, second), normal) - _dot(self._velocity(bodies, first), normal)
        impulse = max(approach, 0.0) / (1 / masses[0] + 1 / masses[1])
        self._push(bodies, first, normal, share * depth, impulse / masses[0])
        if second in self.group:
            self._push(bodies, second, (-normal[0], -normal[1]), share * depth, impulse / masses[1])
        yield Hit(first, second, (impulse * normal[0], impulse * normal[1], 0.0))
        yield Hit(second, first, (-impulse * normal[0], -impulse * normal[1], 0.0))

    def _with_building(self, bodies: Bodies, actor: Actor, building: Floats) -> Iterator[Hit]:
        x, y, yaw, half_length, half_width = (float(value) for value in building[:5])
        found = overlap(rectangle(bodies, actor), Rectangle(x, y, math.radians(yaw), half_length, half_width))
        if found is not None:
            depth, normal = found
            change = max(-_dot(self._velocity(bodies, actor), normal), 0.0)
            self._push(bodies, actor, normal, depth, change)
            impulse = change * model_of(actor).mass
            yield Hit(actor, BUILDING, (impulse * normal[0], impulse * normal[1], 0.0))

    def _velocity(self, bodies: Bodies, actor: Actor) -> tuple[float, float]:
        return float(bodies.motion[actor.row, VX]), float(bodies.motion[actor.row, VY])

    def _push(self, bodies: Bodies, actor: Actor, normal: tuple[float, float], depth: float, change: float) -> None:
        """Moves an actor out and changes its velocity along the normal."""
        motion = bodies.motion[actor.row]
        motion[X] += normal[0] * depth
        motion[Y] += normal[1] * depth
        motion[VX] += normal[0] * change
        motion[VY] += normal[1] * change
        self.group[actor].struck(actor, motion)

    def is_free(self, bodies: Bodies, actor: Actor, pose: list[list[float]]) -> bool:
        """Whether an actor that is not there yet would touch nothing solid."""
        half_length, half_width, _ = actor.box.extent
        wanted = Rectangle(pose[0][0], pose[0][1], math.radians(pose[1][1]), half_length, half_width)
        return all(overlap(wanted, rectangle(bodies, other)) is None for other in self.solid)


def rectangle(bodies: Bodies, actor: Actor) -> Rectangle:
    """Returns an actor's box from above."""
    motion = bodies.motion[actor.row]
    return Rectangle(float(motion[X]), float(motion[Y]), math.radians(motion[YAW]), *actor.box.extent[:2])
