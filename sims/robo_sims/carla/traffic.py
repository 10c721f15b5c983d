"""Other cars of an episode: driven by the server where it can, by the client's Traffic Manager where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np

from robo_sims.carla.link import Link, told
from robo_sims.carla.routes import Route

CLEAR = 15.0
"""[m] from the beginning of the route within which no car begins."""
BASES = ("vehicle.audi.a2", "vehicle.lincoln.mkz_2020", "vehicle.mini.cooper_s", "vehicle.tesla.model3")
"""Ordinary cars that 0.9.16 and the stand-in have."""
MANAGER_PORT = 6000
"""Of the Traffic Manager, plus the last digits of the server's port: the default may be another environment's."""


def place(link: Link, route: Route, count: int, random: np.random.Generator) -> list[Any]:
    """Returns new cars that drive themselves, at most so many as there are places; raises ServerUnavailable."""
    if not count:
        return []
    start = route.points[0]
    with told("The server does not spawn the traffic."):
        spots = [
            spot
            for spot in link.world.get_map().get_spawn_points()
            if np.hypot(spot.location.x - start[0], spot.location.y - start[1]) > CLEAR
        ]
        blueprints = [link.library.find(name) for name in BASES]
        chosen = [spots[number] for number in random.permutation(len(spots))[:count]]
        seeds = random.integers(2**31, size=len(chosen))
        models = random.integers(len(blueprints), size=len(chosen))
        commands = [
            _command(link, blueprints[model], spot, int(seed)) for spot, model, seed in zip(chosen, models, seeds, strict=True)
        ]
        return link.spawn_all(commands)


def _command(link: Link, blueprint: Any, spot: Any, seed: int) -> Any:
    command = link.carla.command
    if blueprint.has_attribute("color"):
        colours = blueprint.get_attribute("color").recommended_values
        blueprint.set_attribute("color", colours[seed % len(colours)])
    if link.begins_anew:
        blueprint.set_attribute("driver", "traffic")
        blueprint.set_attribute("driver_seed", str(seed))
        return command.SpawnActor(blueprint, spot)
    blueprint.set_attribute("role_name", "autopilot")
    return command.SpawnActor(blueprint, spot).then(command.SetAutopilot(command.FutureActor, True, _manager(link, seed)))


def _manager(link: Link, seed: int) -> int:
    """Returns the port of a Traffic Manager in step with the world; its choices follow from the seed of the last car."""
    port = MANAGER_PORT + (link.port % 1000)
    manager = link.client.get_trafficmanager(port)
    manager.set_synchronous_mode(True)
    manager.set_random_device_seed(seed % 2**16)
    return port
