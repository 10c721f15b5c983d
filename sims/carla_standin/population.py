"""Cars and walkers that a server spawns in each episode, reproducible by their seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from carla_standin import blueprints
from carla_standin.errors import Refused
from carla_standin.poses import Pose
from carla_standin.sensors.paint import COLOURS
from carla_standin.world import World

MODELS = ("vehicle.tesla.model3", "vehicle.lincoln.mkz_2020", "vehicle.audi.a2", "vehicle.mini.cooper_s")
WALKERS = blueprints.WALKERS[:6]
"""A fixed subset of the walkers: new blueprints do not change the traffic of a seed."""
KERB = 2.75
"""Distance [m] of waiting walkers from the middle of the outer lane."""
TRIES = 20
"""Number of attempts to find a free place for each walker."""


@dataclass(frozen=True)
class Population:
    """Numbers of vehicles and walkers in each episode."""

    cars: int = 0
    walkers: int = 0
    seed: int = 0

    def spawn(self, world: World) -> None:
        """Spawn vehicles and walkers, fewer if there is too little room."""
        random = np.random.default_rng([self.seed, 3])
        places = world.town.spawn_points
        for number in random.permutation(len(places)):
            if len(world.cars) >= self.cars:
                break
            self._put(world, str(random.choice(MODELS)), places[number], color=COLOURS[len(world.cars) % len(COLOURS)])
        for _ in range(TRIES * self.walkers):
            if len(world.walkers.actors) >= self.walkers:
                break
            self._put(world, str(random.choice(WALKERS)), _kerb(world, random))

    def _put(self, world: World, name: str, pose: Pose, **more: str) -> None:
        given = {"driver": "traffic", "driver_seed": str(self.seed), "role_name": "autopilot"} | more
        try:
            world.spawn([0, name, [[key, 4, value] for key, value in given.items()]], pose)
        except Refused:
            return


def _kerb(world: World, random: np.random.Generator) -> Pose:
    """Return a random pose next to an outer lane, facing the street."""
    lanes = world.town.lanes
    outer = [number for number, way in enumerate(lanes.ways) if way.right < 0 and way.junction == -1 and way.length > 30]
    way = int(random.choice(outer))
    s = float(random.uniform(10.0, lanes.length[way] - 10.0))
    x, y, heading = lanes.poses(np.array([way]), np.array([s]))[0]
    return [
        [float(x - KERB * math.sin(heading)), float(y + KERB * math.cos(heading)), 0.9],
        [0.0, math.remainder(math.degrees(heading) - 90.0, 360.0), 0.0],
    ]
