"""Family "carla": driving along routes on three kinds of maps.

Listing the family loads neither CARLA's client nor a simulator.
"""

from __future__ import annotations

import importlib.util
from contextlib import closing
from typing import TYPE_CHECKING, Any

import gymnasium
from typing_extensions import override

from robo_rl.errors import MissingExtra, UnknownName
from robo_rl.protocols.components import EnvironmentFamily
from robo_sims.task_family import refuse_unknown_arguments

if TYPE_CHECKING:
    from robo_rl.environments.captioned_pictures import CaptionedPictures

MAPS = {"Ring": "ring", "Town": "grid", "Highway": "highway"}
"""Kind of task, as in Ring-v0 -> map of the stand-in on which it runs by default."""
SUFFIXES = {"": "train", "Test": "test"}
TASKS = {f"{name}{suffix}-v0": (map, routes) for suffix, routes in SUFFIXES.items() for name, map in MAPS.items()}
"""Name of a task -> its map and its set of routes: "Ring-v0" has routes to train on, "RingTest-v0" held-out ones."""
ROUTES = {f"{name.lower()}-{routes}": f"{name}{suffix}-v0" for suffix, routes in SUFFIXES.items() for name in MAPS}
"""Name of a set of routes, such as "town-test" -> its task."""


class DrivingFamily(EnvironmentFamily):
    """Family of driving tasks: makes them by name, and makes captioned pictures for image-text models."""

    routes = ROUTES

    @override
    def names(self) -> list[str]:
        for package in ("carla", "carla_standin", "msgpack"):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra("The family 'carla'", package, "carla")
        return list(TASKS)

    @override
    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        if name not in self.names():
            raise UnknownName("task of carla", name, TASKS)
        from robo_sims.carla.environment import DrivingEnv

        refuse_unknown_arguments(f"carla/{name}", DrivingEnv, arguments)
        map, routes = TASKS[name]
        return DrivingEnv(name, **{"map": map, "routes": routes} | arguments)

    def captioned_pictures(self, name: str, *, camera: str, size: int, count: int, seed: int) -> CaptionedPictures:
        """Return `count` bird's-eye pictures of `size` pixels a side, with captions."""
        from robo_sims.carla.captioned_pictures import captioned_pictures

        with closing(self.make(name, birdseye=0)) as environment:
            return captioned_pictures(environment.unwrapped, camera=camera, size=size, count=count, seed=seed)


FAMILY = DrivingFamily()
"""Routes through CARLA, or its stand-in."""
