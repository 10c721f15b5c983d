"""Remote call that casts a ray through the world: ordered hits on the ground, buildings, lights and solid actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from carla_standin.world import World

Floats = npt.NDArray[np.float64]
NONE = 1e-12
"""Component of a direction that counts as zero."""


def cast(world: World, start: Floats, end: Floats) -> list[tuple[list[float], int]]:
    """Return location [m] and semantic label of each body that the ray from `start` to `end` (3,) enters, nearest first."""
    way = end - start
    shares, labels = _boxes(world, start, way)
    on_ground = _ground(world, start, way)
    found = list(zip(shares, labels, strict=True)) + on_ground
    return [((start + share * way).tolist(), int(label)) for share, label in sorted(found)]


def _boxes(world: World, start: Floats, way: Floats) -> tuple[list[float], list[int]]:
    """Return the share of the way to the entry of each body that is hit, and its label; boxes around `start` are left out."""
    if world.is_scene_stale:
        world.scene.reindex(world.bodies)
        world.is_scene_stale = False
    world.scene.step(world.bodies, world.lights.paint())
    boxes = world.scene.boxes
    offset, turned = start - boxes.middles, np.tile(way, (len(boxes), 1))
    cosine, sine = boxes.turns[:, 0], boxes.turns[:, 1]
    for part in (offset, turned):
        part[:, 0], part[:, 1] = cosine * part[:, 0] + sine * part[:, 1], cosine * part[:, 1] - sine * part[:, 0]
    turned = np.where(np.abs(turned) < NONE, NONE, turned)
    first, second = (-boxes.halves - offset) / turned, (boxes.halves - offset) / turned
    enters, leaves = np.minimum(first, second).max(1), np.maximum(first, second).min(1)
    hit = (enters >= 0.0) & (enters <= 1.0) & (enters <= leaves)
    nearest: dict[tuple[int, int], int] = {}
    for number in sorted(np.flatnonzero(hit).tolist(), key=lambda number: float(enters[number])):
        owner = int(boxes.owners[number])
        nearest.setdefault((owner, 0 if owner else number), number)  # a body of several boxes is entered once
    return enters[list(nearest.values())].tolist(), boxes.tags[list(nearest.values())].tolist()


def _ground(world: World, start: Floats, way: Floats) -> list[tuple[float, int]]:
    """Return the share of the way to the ground, from above, and its label there."""
    if start[2] < 0.0 or way[2] >= 0.0 or start[2] + way[2] > 0.0:
        return []
    share = float(-start[2] / way[2])
    place = (start + share * way)[None, :2]
    ground = world.town.ground
    return [(share, int(ground.labels.ravel()[ground.at(place)[0]]))]
