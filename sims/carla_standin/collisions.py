"""Collisions of oriented boxes on the ground: clients' vehicles and walkers against all solid bodies.

Cars of the server's traffic avoid each other and are not tested against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from carla_standin.actors import VX, VY, YAW, Actor, Bodies, X, Y, Z, rows_of
from carla_standin.vehicles import Driven, model_of
from carla_standin.walkers import MASS, Walkers

Floats = npt.NDArray[np.float64]
BUILDING = Actor(0, "static.building", {}, [0, "static.building", []])
"""Actor that stands for a building in collisions."""


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
        """Return the unit vectors of the rectangle's two directions: along its length and along its width."""
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        return (cosine, sine), (-sine, cosine)

    def reach(self, direction: tuple[float, float]) -> float:
        """Return half of the rectangle's extent along a direction, a unit vector."""
        first, second = self.axes
        return self.half_length * abs(_dot(first, direction)) + self.half_width * abs(_dot(second, direction))


def _dot(first: tuple[float, float], second: tuple[float, float]) -> float:
    return first[0] * second[0] + first[1] * second[1]


def overlap(one: Rectangle, other: Rectangle) -> tuple[float, tuple[float, float]] | None:
    """Return penetration depth and separating direction, from `other` to `one`, of two rectangles; None if they are apart."""
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
    """Impulse x, y, z [N s] that the actor receives."""


class Collisions:
    """Collision detection and response for all solid bodies."""

    def __init__(self, buildings: Floats) -> None:
        self.buildings = buildings
        self.reindex(Bodies(), (), Walkers())

    def reindex(self, bodies: Bodies, groups: Sequence[Driven], walkers: Walkers) -> None:
        """Find the solid bodies, their rows and sizes again, after actors came or went."""
        self.walkers = walkers
        self.solid = [actor for actor in bodies if actor.is_obstacle and actor.collides]
        self.rows = rows_of(self.solid)
        self.radius = np.array([math.hypot(*actor.box.extent[:2]) for actor in self.solid])
        self.group = {actor: group for group in groups for actor in group.actors}
        hitters = [number for number, actor in enumerate(self.solid) if actor in self.group or actor in walkers.velocity]
        self.hitters = np.array(hitters, np.intp)
        radius = np.append(self.radius, np.hypot(self.buildings[:, 3], self.buildings[:, 4]))
        self.reach = (self.radius[self.hitters, None] + radius) ** 2
        """[m2] (hitters, bodies and then buildings): squared distance within which they may touch."""
        self.reach[np.arange(len(self.hitters)), self.hitters] = -1.0
        for number, first in enumerate(self.hitters):  # a pair of two hitters once
            self.reach[number, self.hitters[self.hitters < first]] = -1.0
        self.is_alone = not (self.reach > 0.0).any()
        """Whether no collision is possible."""
        self.places = np.concatenate([np.zeros((len(self.solid), 2)), self.buildings[:, :2]])

    def step(self, bodies: Bodies) -> list[Hit]:
        """Separate overlapping bodies, remove their speed of approach, and return the hits."""
        if self.is_alone:
            return []
        hits: list[Hit] = []
        for first, second in self._near(bodies):
            if second < len(self.solid):
                hits += self._between(bodies, self.solid[first], self.solid[second])
            else:
                hits += self._with_building(bodies, self.solid[first], self.buildings[second - len(self.solid)])
        return hits

    def _near(self, bodies: Bodies) -> list[tuple[int, int]]:
        """Return pairs of a hitter and another body whose circles touch, buildings last."""
        self.places[: len(self.solid)] = bodies.motion[self.rows, :2]
        offset = self.places - self.places[self.hitters, None]
        offset *= offset
        close = offset[..., 0] + offset[..., 1] < self.reach
        if not close.any():
            return []
        pairs = [(int(self.hitters[number]), int(other)) for number, other in zip(*np.nonzero(close), strict=True)]
        return sorted(pairs, key=lambda pair: pair[1] >= len(self.solid))

    def _between(self, bodies: Bodies, first: Actor, second: Actor) -> Iterator[Hit]:
        found = overlap(rectangle(bodies, first), rectangle(bodies, second))
        if found is None or (first in self.group and self._mass(first) == self._mass(second) == math.inf):
            return
        depth, normal = found
        if second in self.walkers.velocity:
            first, second, normal = second, first, (-normal[0], -normal[1])
        part = self._part_from_walker if first in self.walkers.velocity else self._part
        impulse = part(bodies, first, second, depth, normal)
        yield Hit(first, second, (impulse * normal[0], impulse * normal[1], 0.0))
        yield Hit(second, first, (-impulse * normal[0], -impulse * normal[1], 0.0))

    def _approach(self, bodies: Bodies, first: Actor, second: Actor, normal: tuple[float, float]) -> float:
        """Return the speed [m/s], at least 0, at which two bodies approach each other along the normal."""
        return max(_dot(self._velocity(bodies, second), normal) - _dot(self._velocity(bodies, first), normal), 0.0)

    def _part(self, bodies: Bodies, first: Actor, second: Actor, depth: float, normal: tuple[float, float]) -> float:
        """Push a vehicle and another body apart, end their approach, and return the impulse [N s]."""
        masses = [self._mass(actor) for actor in (first, second)]
        inverse = 1 / masses[0] + 1 / masses[1]
        impulse = self._approach(bodies, first, second, normal) / inverse if inverse else 0.0
        share = 0.5 if math.inf not in masses else 1.0
        if masses[0] < math.inf:
            self._push(bodies, first, normal, share * depth, impulse / masses[0])
        if masses[1] < math.inf:
            self._push(bodies, second, (-normal[0], -normal[1]), share * depth, impulse / masses[1])
        return impulse

    def _part_from_walker(
        self, bodies: Bodies, walker: Actor, other: Actor, depth: float, normal: tuple[float, float]
    ) -> float:
        """Separate a walker from another body; return the impulse [N s].

        A walker who walks into a body stops and moves nothing; a body that drives into a walker throws it forward.
        """
        approach = self._approach(bodies, walker, other, normal)
        if other in self.walkers.velocity:
            back = -normal[0], -normal[1]
            self.walkers.struck(walker, bodies, normal, 0.5 * depth, 0.0)
            self.walkers.struck(other, bodies, back, 0.5 * depth, 0.0)
            return 0.5 * MASS * approach
        driven = min(approach, max(_dot(self._velocity(bodies, other), normal), 0.0))
        mass = self._mass(other)
        impulse = driven / (1 / MASS + 1 / mass)
        self.walkers.struck(walker, bodies, normal, depth, impulse / MASS)
        if mass < math.inf:
            self._push(bodies, other, (-normal[0], -normal[1]), 0.0, impulse / mass)
        return impulse + MASS * (approach - driven)

    def _mass(self, actor: Actor) -> float:
        """Return the mass [kg] of an actor, infinite if nothing can move it."""
        return model_of(actor).mass if actor in self.group and actor.has_physics else math.inf

    def _with_building(self, bodies: Bodies, actor: Actor, building: Floats) -> Iterator[Hit]:
        x, y, yaw, half_length, half_width = (float(value) for value in building[:5])
        found = overlap(rectangle(bodies, actor), Rectangle(x, y, math.radians(yaw), half_length, half_width))
        if found is None or not actor.has_physics:
            return
        depth, normal = found
        change = max(-_dot(self._velocity(bodies, actor), normal), 0.0)
        if actor in self.group:
            self._push(bodies, actor, normal, depth, change)
        else:
            self.walkers.struck(actor, bodies, normal, depth, 0.0)
        impulse = change * (model_of(actor).mass if actor in self.group else MASS)
        yield Hit(actor, BUILDING, (impulse * normal[0], impulse * normal[1], 0.0))

    def _velocity(self, bodies: Bodies, actor: Actor) -> tuple[float, float]:
        return float(bodies.motion[actor.row, VX]), float(bodies.motion[actor.row, VY])

    def _push(self, bodies: Bodies, actor: Actor, normal: tuple[float, float], depth: float, change: float) -> None:
        """Move an actor along the normal by `depth` [m], and change its velocity along it by `change` [m/s]."""
        motion = bodies.motion[actor.row]
        motion[X] += normal[0] * depth
        motion[Y] += normal[1] * depth
        motion[VX] += normal[0] * change
        motion[VY] += normal[1] * change
        self.group[actor].struck(actor, motion)

    def is_free(self, bodies: Bodies, actor: Actor, pose: list[list[float]]) -> bool:
        """Return True if a new actor at a pose would touch no other body."""
        if actor.is_low:
            return True
        half_length, half_width, _ = actor.box.extent
        wanted = Rectangle(pose[0][0], pose[0][1], math.radians(pose[1][1]), half_length, half_width)
        return not any(
            overlap(wanted, rectangle(bodies, other)) is not None
            for other in bodies
            if other.has_body
            and other.collides
            and not other.is_low
            and _share_height(actor, pose[0][2], other, bodies.motion[other.row, Z])
        )


def _share_height(first: Actor, first_z: float, second: Actor, second_z: float) -> bool:
    """Return True if two boxes whose origins are at these heights [m] overlap vertically."""
    apart = (first_z + first.box.centre[2]) - (second_z + second.box.centre[2])
    return bool(abs(apart) < first.box.extent[2] + second.box.extent[2])


def rectangle(bodies: Bodies, actor: Actor) -> Rectangle:
    """Return the rectangle that an actor covers on the ground."""
    motion = bodies.motion[actor.row]
    return Rectangle(float(motion[X]), float(motion[Y]), math.radians(motion[YAW]), *actor.box.extent[:2])
