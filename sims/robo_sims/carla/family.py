"""The family "carla": routes on three kinds of maps. Listing it loads neither the client nor a simulator."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium

from robo_rl.errors import MissingExtra
from robo_sims.task_family import TaskFamily

if TYPE_CHECKING:
    from robo_rl.rewards.embedded.pictures import CaptionedPictures

MAPS = {"Ring": "ring", "Town": "grid", "Highway": "highway"}
"""Task -> the map that it is on by default."""
SUFFIXES = {"": "train", "Test": "test"}
TASKS = {f"{name}{suffix}-v0": (map, routes) for suffix, routes in SUFFIXES.items() for name, map in MAPS.items()}
"""Full name of a task -> its map and set of routes: "Ring-v0", and "RingTest-v0" with routes that nobody has trained on."""


def build(  # noqa: PLR0913, PLR0917 (what a recipe may say)
    task: str,
    map: str | None = None,
    reward: str = "carl",
    routes: str | None = None,
    route_length: float = 200.0,
    traffic: int = 0,
    walkers: int = 0,
    scenario: str = "",
    birdseye: int = 96,
    birdseye_rgb: int = 0,
    camera: int = 0,
    max_steps: int | None = None,
    host: str | None = None,
    port: int | Sequence[int] = 2000,
    patience: float = 10.0,
    render_mode: str | None = None,
) -> gymnasium.Env[Any, Any]:
    """Returns a fresh environment; the arguments are those of DrivingEnv."""
    from robo_sims.carla.environment import DrivingEnv

    return DrivingEnv(
        task,
        map=TASKS[task][0] if map is None else map,
        reward=reward,
        routes=TASKS[task][1] if routes is None else routes,
        route_length=route_length,
        traffic=traffic,
        walkers=walkers,
        scenario=scenario,
        birdseye=birdseye,
        birdseye_rgb=birdseye_rgb,
        camera=camera,
        max_steps=max_steps,
        host=host,
        port=port,
        patience=patience,
        render_mode=render_mode,
    )


def tasks() -> list[str]:
    """Returns the task names; raises MissingExtra where the client is not installed, without loading it where it is."""
    for package in ("carla", "msgpack"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra("The family 'carla'", package, "carla")
    return list(TASKS)


ROUTES = {f"{name.lower()}-{routes}": f"{name}{suffix}-v0" for suffix, routes in SUFFIXES.items() for name in MAPS}
"""Name of a set of routes -> the task that drives them: "town-test"."""


@dataclass(frozen=True)
class DrivingFamily(TaskFamily):
    """The family, and pictures with sentences for models that learn from them."""

    def captioned_pictures(self, name: str, *, camera: str, size: int, count: int, seed: int) -> CaptionedPictures:
        """Returns pictures from above with all that is true of them."""
        from robo_sims.carla.captioned import captioned_pictures

        return captioned_pictures(name, camera=camera, size=size, count=count, seed=seed)


FAMILY = DrivingFamily("carla", tasks, build, routes=ROUTES)
