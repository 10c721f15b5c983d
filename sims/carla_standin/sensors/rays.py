"""Rays of lidars, radars and obstacle detectors against the flat ground and the boxes of a scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from carla_standin.sensors.observed_world import ObservedWorld

Floats = npt.NDArray[np.float64]
Corners = tuple[list[float], list[float]]
GROUND = -1
"""Index that stands for the ground, or for no hit, in place of the index of a box."""


@dataclass(frozen=True)
class Hits:
    """First hit of each of many rays; `...` is the shape of the array of rays."""

    distance: Floats
    """(...) [m] along the ray; infinite without a hit."""
    box: npt.NDArray[np.intp]
    """(...) number of the box in the scene, or GROUND."""
    incidence: Floats
    """(...) cosine of the angle between the ray and the surface normal, 0 to 1."""


def cast(origin: Floats, rays: Floats, reach: float, world: ObservedWorld, carrier: int) -> Hits:
    """Return the first hits of rays (..., 3), unit vectors in the world's frame; boxes of the actor `carrier` are left out.

    origin: (3,) of all rays, or (..., 3) of each. reach: [m] distance from the first origin within which boxes are tested.
    """
    falling = -rays[..., 2]
    distance = np.full(falling.shape, np.inf)
    np.divide(np.maximum(origin[..., 2], 0.01), falling, out=distance, where=falling > 1e-6)
    box, incidence = np.full(falling.shape, GROUND, np.intp), np.maximum(falling, 0.0)
    world.look()
    boxes, first = world.scene.boxes, origin.reshape(-1, 3)[0, :2]
    near = np.hypot(*(boxes.numbers[:, :2] - first).T) < reach + boxes.numbers[:, 3] + boxes.numbers[:, 4]
    near &= boxes.numbers[:, 6] > 0.0
    near &= boxes.owners != carrier if carrier else True
    for number in np.flatnonzero(near).tolist():
        turn, corners = frame_of(boxes.numbers[number])
        local = rays @ turn
        first_sides, second_sides = crossings((origin - [*boxes.numbers[number, :2], 0.0]) @ turn, local, corners)
        entries = np.minimum(first_sides, second_sides)
        begin, end = entries.max(-1), np.maximum(first_sides, second_sides).min(-1)
        hit = (begin < end) & (begin > 0) & (begin < distance)
        if hit.any():
            distance[hit], box[hit] = begin[hit], number
            side = entries[hit].argmax(-1)[:, None]  # the axis of the face through which a ray enters
            incidence[hit] = np.abs(np.take_along_axis(local[hit], side, -1))[:, 0]
    return Hits(distance, box, incidence)


def frame_of(numbers: Floats) -> tuple[Floats, Corners]:
    """Return a box's orientation and corners, computed from its numbers.

    Returns:
        The rotation (3, 3) from the world's frame to the box's frame, and the corners of the box in its own frame.
    """
    _, _, yaw, half_length, half_width, bottom, top = numbers.tolist()
    turn = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
    return turn, ([-half_length, -half_width, bottom], [half_length, half_width, top])


def through(origin: Floats, directions: Floats, corners: Corners) -> tuple[Floats, Floats]:
    """Return entry and exit of rays (..., 3) through an axis-aligned box, as multiples of their directions."""
    first, second = crossings(origin, directions, corners)
    return np.minimum(first, second).max(-1), np.maximum(first, second).min(-1)


def crossings(origin: Floats, directions: Floats, corners: Corners) -> tuple[Floats, Floats]:
    """Return where rays cross the planes of a box's sides.

    Args:
        origin: Start of the rays.
        directions: (..., 3) Directions of the rays.
        corners: Lowest and highest corner of the box.

    Returns:
        Two arrays (..., 3): for each axis, the crossings with the lower and the upper plane, as multiples of the directions.
    """
    safe = np.where(np.abs(directions) < 1e-12, 1e-12, directions)
    return (np.array(corners[0]) - origin) / safe, (np.array(corners[1]) - origin) / safe
