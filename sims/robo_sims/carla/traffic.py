"""Other cars of an episode, driven by the server if it can, else by the client's Traffic Manager."""

from __future__ import annotations

from typing import Any

import numpy as np

from robo_sims.carla.routes import Route
from robo_sims.carla.session import CarlaSession, as_server_unavailable

CLEAR = 15.0
"""[m] around the start of the route without other cars."""
BASES = ("vehicle.audi.a2", "vehicle.lincoln.mkz_2020", "vehicle.mini.cooper_s", "vehicle.tesla.model3")
"""Ordinary cars, available in 0.9.16 and the stand-in."""
MANAGER_PORT = 6000
"""Base port of the Traffic Manager, plus the last digits of the server's port: the default may be in use."""


def spawn_traffic(session: CarlaSession, route: Route, count: int, random: np.random.Generator) -> list[Any]:
    """Return new autonomous cars, at most one per spawn point; raises ServerUnavailable."""
    if not count:
        return []
    start = route.points[0]
    with as_server_unavailable("The server does not spawn the traffic."):
        spots = [
            spot
            for spot in session.world.get_map().get_spawn_points()
            if np.hypot(spot.location.x - start[0], spot.location.y - start[1]) > CLEAR
        ]
        blueprints = [session.library.find(name) for name in BASES]
        chosen = [spots[number] for number in random.permutation(len(spots))[:count]]
        seeds = random.integers(2**31, size=len(chosen))
        models = random.integers(len(blueprints), size=len(chosen))
        commands = [
            _command(session, blueprints[model], spot, int(seed))
            for spot, model, seed in zip(chosen, models, seeds, strict=True)
        ]
        return session.spawn_all(commands)


def _command(session: CarlaSession, blueprint: Any, spot: Any, seed: int) -> Any:
    command = session.carla.command
    if blueprint.has_attribute("color"):
        colours = blueprint.get_attribute("color").recommended_values
        blueprint.set_attribute("color", colours[seed % len(colours)])
    if session.has_own_traffic:
        blueprint.set_attribute("driver", "traffic")
        blueprint.set_attribute("driver_seed", str(seed))
        return command.SpawnActor(blueprint, spot)
    blueprint.set_attribute("role_name", "autopilot")
    return command.SpawnActor(blueprint, spot).then(command.SetAutopilot(command.FutureActor, True, _manager(session, seed)))


def _manager(session: CarlaSession, seed: int) -> int:
    """Return the port of a synchronous Traffic Manager, seeded with the seed of the last car."""
    port = MANAGER_PORT + (session.port % 1000)
    manager = session.client.get_trafficmanager(port)
    manager.set_synchronous_mode(True)
    manager.set_random_device_seed(seed % 2**16)
    return port
