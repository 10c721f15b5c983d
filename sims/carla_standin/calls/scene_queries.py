"""Queries of the scene: rays, the ground below a point, objects of the map."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from carla_standin import ray_casting
from carla_standin.host import Host
from carla_standin.layouts import Tag
from carla_standin.poses import numbers
from carla_standin.responses import valued
from carla_standin.sensors.scene import Boxes

ANY = 255
"""Label in a request that selects the objects of all labels."""


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call that queries the scene -> function that carries it out."""
    about = Places(host)
    return dict(
        valued(
            cast_ray=about.cast_ray,
            project_point=about.project_point,
            get_names_of_all_objects=about.names,
            get_all_level_BBs=about.boxes,
            get_environment_objects=about.objects,
            get_light_boxes=about.light_boxes,
        )
    )


class Places:
    """Remote calls that query the scene. A labelled point in an answer is [[x, y, z], label]."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def cast_ray(self, start: object, end: object) -> list[object]:
        """Return the labelled points at which a ray from `start` to `end` enters bodies, nearest first."""
        first, last = (np.array(numbers(place, 3, "A location")) for place in (start, end))
        return [[place, label] for place, label in ray_casting.cast(self.host.world, first, last)]

    def project_point(self, start: object, direction: object, distance: object) -> list[object]:
        """Return whether a ray hits anything within a distance [m], and place and label of the nearest hit."""
        first = np.array(numbers(start, 3, "A location"))
        way = np.array(numbers(direction, 3, "A direction"))
        (far,) = numbers([distance], 1, "A distance")
        length = float(np.linalg.norm(way))
        found = ray_casting.cast(self.host.world, first, first + way * (far / length)) if length > 0 else []
        place, label = found[0] if found else ([0.0, 0.0, 0.0], 0)
        return [bool(found), [place, label]]

    def names(self) -> list[str]:
        """Return the names of the map's objects."""
        return [f"{Tag(tag).name.lower()}_{number}" for number, tag in enumerate(self._still.tags.tolist())]

    @property
    def _still(self) -> Boxes:
        """Boxes of the map's objects, which do not move."""
        return self.host.world.scene.still

    def _wanted(self, tag: int) -> list[int]:
        """Return the numbers of the objects with a semantic label, or of all."""
        return [number for number, own in enumerate(self._still.tags.tolist()) if tag in (own, ANY)]

    def boxes(self, tag: int = ANY) -> list[object]:
        """Return the boxes, in the world's frame, of the map's objects with a semantic label."""
        return [_encoded(self._still, number) for number in self._wanted(tag)]

    def objects(self, tag: int = ANY) -> list[object]:
        """Return the map's objects with a semantic label: transform, box, id, name, label."""
        names = self.names()
        found: list[object] = []
        for number in self._wanted(tag):
            box = _encoded(self._still, number)
            found.append([[box[0], box[2]], box, number + 1, names[number], int(self._still.tags[number])])
        return found

    def light_boxes(self, number: int) -> list[object]:
        """Return the box of a traffic light's only head, in the world's frame."""
        lights = self.host.world.lights
        return [_encoded(lights.boxes(), len(lights) + lights.number(self.host.world.actor(number)))]


def _encoded(boxes: Boxes, number: int) -> list[Any]:
    """Return one box in the client's encoding: centre, half sizes, rotation [degree], and no actor."""
    yaw = math.degrees(float(boxes.numbers[number, 2]))
    return [boxes.middles[number].tolist(), boxes.halves[number].tolist(), [0.0, yaw, 0.0], 0]
