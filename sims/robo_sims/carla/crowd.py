"""People on foot beside the route, who cross the street by themselves and look before they do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_sims.carla.link import Link, told
from robo_sims.carla.roads import HEADING, JUNCTION, SPACING, Roads, X, Y, Z
from robo_sims.carla.routes import Route

CLEAR, LAST = 20.0, 10.0
"""[m] of the beginning and of the end of a route without walkers."""
KERB, WIDEST = 0.9, 20.0
"""[m] from the road to where walkers stand, and of the widest road."""
MODELS = tuple(f"walker.pedestrian.{number:04}" for number in range(1, 7))
"""That 0.9.16 and the stand-in have."""
HEIGHT = 0.9
"""[m] of a walker's middle."""


def place(link: Link, roads: Roads, route: Route, count: int, random: np.random.Generator) -> list[Any]:
    """Returns new walkers beside the route, fewer if there is no room; raises InvalidSetting, ServerUnavailable."""
    if not count:
        return []
    if not link.begins_anew:
        raise InvalidSetting(
            "This server has no walkers that cross by themselves.",
            got=f"walkers={count}",
            allowed="walkers=0, or a stand-in",
            fix="scenario=pedestrian-crossing works on any server",
        )
    commands = []
    for index in beside(route, random, count):
        blueprint = link.library.find(str(random.choice(MODELS)))
        blueprint.set_attribute("driver", "traffic")
        blueprint.set_attribute("driver_seed", str(int(random.integers(2**31))))
        commands.append(link.carla.command.SpawnActor(blueprint, kerb(link.carla, roads, route, index)))
    with told("The server does not spawn the walkers."):
        return link.spawn_all(commands)


def beside(route: Route, random: np.random.Generator, count: int) -> list[int]:
    """Returns points of a route, by chance, beside which somebody may stand: not in a junction, nor at its very ends."""
    free = np.flatnonzero(route.points[:, JUNCTION] == 0)
    free = free[(free * SPACING >= CLEAR) & (free * SPACING <= route.length - LAST)]
    return sorted(random.permutation(free)[:count].tolist())


def kerb(carla: Any, roads: Roads, route: Route, index: int) -> Any:
    """Returns the pose of a walker to the right of the road at a point of the route, who looks across it."""
    point = route.points[index]
    right = -math.sin(point[HEADING]), math.cos(point[HEADING])
    away = next(
        (d for d in np.arange(1.0, WIDEST, 0.25) if not roads.is_road(point[X] + d * right[0], point[Y] + d * right[1])), WIDEST
    )
    x, y = (float(point[axis] + (away + KERB) * right[axis]) for axis in (X, Y))
    return carla.Transform(
        carla.Location(x, y, float(point[Z]) + HEIGHT), carla.Rotation(yaw=math.degrees(point[HEADING]) - 90.0)
    )
