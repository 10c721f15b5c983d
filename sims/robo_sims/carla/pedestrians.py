"""Autonomous pedestrians at the kerb of the route; they look before they cross."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_sims.carla.roads import HEADING, JUNCTION, SPACING, Roads, X, Y, Z
from robo_sims.carla.routes import Route
from robo_sims.carla.session import Session, as_server_unavailable

CLEAR, LAST = 20.0, 10.0
"""Lengths [m] of the route without walkers: at its start, and at its end."""
KERB, WIDEST = 0.9, 20.0
"""Distance [m] of waiting walkers from the edge of the road, and width [m] of the widest road that is searched for its edge."""
MODELS = tuple(f"walker.pedestrian.{number:04}" for number in range(1, 7))
"""Available in 0.9.16 and the stand-in."""
HEIGHT = 0.9
"""[m] above the ground of a walker's middle."""


def spawn_pedestrians(session: Session, roads: Roads, route: Route, count: int, random: np.random.Generator) -> list[Any]:
    """Return new walkers at the kerb, fewer if there is no room; raises InvalidSetting, ServerUnavailable."""
    if not count:
        return []
    if not session.has_own_traffic:
        raise InvalidSetting(
            "This server has no walkers that cross by themselves.",
            got=f"walkers={count}",
            allowed="walkers=0, or a stand-in",
            fix="scenario=pedestrian-crossing works on any server",
        )
    wanted = []
    for index in draw_points(route, random, count):
        blueprint = session.library.find(str(random.choice(MODELS)))
        blueprint.set_attribute("driver", "traffic")
        blueprint.set_attribute("driver_seed", str(int(random.integers(2**31))))
        wanted.append((blueprint, kerb_pose(session.carla, roads, route, index)))
    with as_server_unavailable("The server does not spawn the walkers."):
        return session.spawn_all(wanted)


def draw_points(route: Route, random: np.random.Generator, count: int) -> list[int]:
    """Return indices of random route points with a kerb: outside junctions and away from both ends."""
    free = np.flatnonzero(route.points[:, JUNCTION] == 0)
    free = free[(free * SPACING >= CLEAR) & (free * SPACING <= route.length - LAST)]
    return sorted(random.permutation(free)[:count].tolist())


def kerb_pose(carla: Any, roads: Roads, route: Route, index: int) -> Any:
    """Return the pose of a walker to the right of the road at a route point, facing the road."""
    point = route.points[index]
    right = -math.sin(point[HEADING]), math.cos(point[HEADING])
    away = next(
        (d for d in np.arange(1.0, WIDEST, 0.25) if not roads.is_road(point[X] + d * right[0], point[Y] + d * right[1])), WIDEST
    )
    x, y = (float(point[axis] + (away + KERB) * right[axis]) for axis in (X, Y))
    return carla.Transform(
        carla.Location(x, y, float(point[Z]) + HEIGHT), carla.Rotation(yaw=math.degrees(point[HEADING]) - 90.0)
    )
