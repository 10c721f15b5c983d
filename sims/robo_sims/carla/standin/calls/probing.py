"""Calls about places: rays, the ground below a point, names of objects."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robo_sims.carla.standin import probing
from robo_sims.carla.standin.host import Host
from robo_sims.carla.standin.layouts import Tag
from robo_sims.carla.standin.poses import numbers
from robo_sims.carla.standin.responses import valued


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return name -> call."""
    about = Places(host)
    return dict(
        valued(
            cast_ray=about.cast_ray,
            project_point=about.project_point,
            get_names_of_all_objects=about.names,
        )
    )


class Places:
    """The calls, one a method. A labelled point is [[x, y, z], label]."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def cast_ray(self, start: object, end: object) -> list[object]:
        """Return labelled points where a ray enters something, nearest first."""
        first, last = (np.array(numbers(place, 3, "A location")) for place in (start, end))
        return [[place, label] for place, label in probing.cast(self.host.world, first, last)]

    def project_point(self, start: object, direction: object, distance: object) -> list[object]:
        """Return whether something lies in a direction within a distance [m], and the labelled point that is nearest."""
        first = np.array(numbers(start, 3, "A location"))
        way = np.array(numbers(direction, 3, "A direction"))
        (far,) = numbers([distance], 1, "A distance")
        length = float(np.linalg.norm(way))
        found = probing.cast(self.host.world, first, first + way * (far / length)) if length > 0 else []
        place, label = found[0] if found else ([0.0, 0.0, 0.0], 0)
        return [bool(found), [place, label]]

    def names(self) -> list[str]:
        """Return names of what stands on the map."""
        buildings = [f"building_{number}" for number in range(len(self.host.world.town.buildings))]
        return [*buildings, *(f"{Tag.TRAFFIC_LIGHT.name.lower()}_{light.id}" for light in self.host.world.lights.actors)]
