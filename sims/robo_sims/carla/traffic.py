"""Other cars of an episode, driven by the server if it can, else by the client's Traffic Manager."""

from __future__ import annotations

from typing import Any

import numpy as np

from robo_sims.carla.routes import Route
from robo_sims.carla.session import CarlaSession, Session, as_server_unavailable

CLEAR = 15.0
"""Distance [m] from the start of the route within which no other car is spawned."""
BASES = ("vehicle.audi.a2", "vehicle.lincoln.mkz_2020", "vehicle.mini.cooper_s", "vehicle.tesla.model3")
"""Blueprints of ordinary cars for the traffic; both CARLA 0.9.16 and the stand-in have them."""
MANAGER_PORT = 6000
"""Base port of the Traffic Manager, plus the last digits of the server's port: the default may be in use."""


def spawn_traffic(session: Session, route: Route, count: int, random: np.random.Generator) -> list[Any]:
    """Return new autonomous cars, at most one per spawn point; raises ServerUnavailable."""
    if not count:
        return []
    start = route.points[0]
    with as_server_unavailable("The server does not spawn the traffic."):
        spots = [
            spot for spot in session.spawn_points() if np.hypot(spot.location.x - start[0], spot.location.y - start[1]) > CLEAR
        ]
        chosen = [spots[number] for number in random.permutation(len(spots))[:count]]
        seeds = random.integers(2**31, size=len(chosen)).tolist()
        models = random.integers(len(BASES), size=len(chosen)).tolist()
        cars = [_car(session, BASES[model], seed) for model, seed in zip(models, seeds, strict=True)]
        manager = None if session.has_own_traffic or not seeds else _manager(session, seeds[-1])
        return session.spawn_all(list(zip(cars, chosen, strict=True)), manager)


def _car(session: Session, base: str, seed: int) -> Any:
    """Return the blueprint of a car with a colour by its seed."""
    blueprint = session.library.find(base)
    if blueprint.has_attribute("color"):
        colours = blueprint.get_attribute("color").recommended_values
        blueprint.set_attribute("color", colours[seed % len(colours)])
    if session.has_own_traffic:
        blueprint.set_attribute("driver", "traffic")
        blueprint.set_attribute("driver_seed", str(seed))
    else:
        blueprint.set_attribute("role_name", "autopilot")
    return blueprint


def _manager(session: Session, seed: int) -> int:
    """Return the port of a synchronous Traffic Manager, seeded with the seed of the last car."""
    assert isinstance(session, CarlaSession)
    port = MANAGER_PORT + (session.port % 1000)
    manager = session.client.get_trafficmanager(port)
    manager.set_synchronous_mode(True)
    manager.set_random_device_seed(seed % 2**16)
    return port
