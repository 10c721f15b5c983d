"""Drive routes with the scripted expert, and watch the server's traffic: how good a driver can be here, and on CARLA's towns.

    python -m robo_bench.expert_driving                                  # town-test, with walkers, and routes of 1 km
    python -m robo_bench.expert_driving --suites town-test --routes 20
    python -m robo_bench.expert_driving --towns FOLDER --routes 50       # each OpenDRIVE file of a folder
    python -m robo_bench.expert_driving --watch --minutes 30             # the traffic of six maps alone, or of --towns

A suite is a set of seeds; each line says how many routes were finished, and what ended the others, with their seeds. A line of
the traffic tells how often two of its cars overlapped and how many entered a junction on red, by the world's own records, in
`--minutes` of simulated time with `--traffic` cars.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from carla_standin.actors import YAW, X, Y
from carla_standin.collisions import overlap, rectangle
from carla_standin.layouts import TrafficLightState
from carla_standin.local_streams import LocalStreams
from carla_standin.maps.catalogue import Catalogue
from carla_standin.population import Population
from carla_standin.settings import Settings
from carla_standin.world import World
from robo_rl.types import MEASURES
from robo_sims.carla.family import FAMILY

TRAFFIC = 20
"""Number of other cars on each measured route."""
SUITES: Mapping[str, tuple[int, int, Mapping[str, Any]]] = {
    "town-test": (900_000, 100, {}),
    "town-test, 4 walkers": (920_000, 40, {"walkers": 4}),
    "town-test, 1 km": (930_000, 20, {"route_length": 1000.0}),
    "ring-test": (940_000, 50, {}),
    "highway-test": (950_000, 50, {}),
}
"""Name -> first seed, number of routes and arguments."""
USUAL = ("town-test", "town-test, 4 walkers", "town-test, 1 km")
WATCHED = ("ring", "grid", "highway", "stops", "grid_train_0", "grid_test_0")
"""Own maps whose traffic is watched."""
STEP = 0.1
"""[s] of a step of the traffic, as in trainings."""
LOG = logging.getLogger(__name__)
FAR = 12.0
"""Distance [m] between the middles of two vehicles above which they cannot overlap."""


@dataclass(frozen=True)
class Expert:
    """Settings of the command."""

    suites: tuple[str, ...] = USUAL
    """Names of suites."""
    routes: int = 0
    """Number of routes; 0 is that of the suite, or 50 for each town."""
    towns: str = ""
    """Folder of OpenDRIVE files to drive on instead."""
    only: tuple[str, ...] = ()
    """Names of towns or watched maps; all by default."""
    traffic: int = TRAFFIC
    """Number of other cars."""
    watch: bool = False
    """Watch the traffic alone, without the expert."""
    minutes: float = 30.0
    """Simulated time of the traffic of each map."""
    verbose: bool = False
    """Print a line for each route."""


@dataclass
class Ends:
    """How the routes of a suite ended."""

    finished: int = 0
    count: int = 0
    others: dict[str, list[int]] = field(default_factory=dict)
    """Stop reason of routes that were not finished -> seeds of these routes."""

    def __str__(self) -> str:
        told = "".join(f"; {len(seeds)} {reason} ({', '.join(map(str, seeds))})" for reason, seeds in self.others.items())
        return f"{self.finished} of {self.count} finished{told}"


def drive(task: str, first: int, count: int, **arguments: Any) -> Ends:
    """Return how the routes with seeds from `first` on ended under the scripted expert."""
    ends = Ends()
    with closing(FAMILY.make(task, birdseye=0, **arguments)) as environment:
        policy = environment.unwrapped.scripted_policy(0)  # type: ignore[attr-defined]
        for seed in range(first, first + count):
            observation, _ = environment.reset(seed=seed)
            policy.reset()
            info: dict[str, Any] = {}
            while "stop_reason" not in info:
                observation, _, _, _, info = environment.step(policy.act(observation, deterministic=True))
            ends.count += 1
            LOG.info("%s %s: seed %d %s, %.0f %%", task, arguments.get("map", ""), seed, info["stop_reason"], _share(info))
            ends.finished += bool(info["success"])
            if not info["success"]:
                ends.others.setdefault(str(info["stop_reason"]), []).append(seed)
    return ends


def _share(info: Mapping[str, Any]) -> float:
    """Return how much [%] of a route was done; NaN if the server was lost."""
    return float(dict(info.get(MEASURES, {})).get("route_completion", math.nan))


def watch_traffic(catalogue: Catalogue, name: str, cars: int, minutes: float) -> Counter[str]:
    """Count overlaps of two cars and entries on red in the stand-in's own traffic on a map, without an expert's car.

    Args:
        catalogue: Maps of the stand-in.
        name: Name of the map.
        cars: Requested number of cars.
        minutes: Simulated time.

    Returns:
        Counts by name: "overlaps", "reds", and "cars", the number of cars that found a place.
    """
    world = World(catalogue.town(name), LocalStreams())
    world.settings = Settings(synchronous=True, fixed_delta=(True, STEP))
    Population(cars, 0, 5).spawn(world)
    found: Counter[str] = Counter(cars=len(world.cars))
    touching: set[tuple[int, int]] = set()
    before = _fronts(world)
    for _ in range(round(minutes * 60 / STEP)):
        world.tick()
        now = _overlaps(world)
        found["overlaps"] += len(now - touching)
        touching = now
        fronts = _fronts(world)
        found["reds"] += sum(_passed_red(world, old, new) for old, new in zip(before, fronts, strict=True))
        before = fronts
    return found


def _fronts(world: World) -> list[tuple[int, float]]:
    """Return the way of each car, and how far [m] its front is from the end of it."""
    cars = world.cars
    return list(zip(cars.way.tolist(), (cars.lanes.length[cars.way] - cars.s - cars.half).tolist(), strict=True))


def _passed_red(world: World, old: tuple[int, float], new: tuple[int, float]) -> bool:
    light = int(world.lights.of_way[old[0]])
    if light < 0 or old[1] <= 0 or not (old[0] != new[0] or new[1] <= 0):
        return False
    is_change = old[0] != new[0] and new[0] in (world.cars.lanes.ways[old[0]].left, world.cars.lanes.ways[old[0]].right)
    return not is_change and int(world.lights.colours[light]) == TrafficLightState.RED


def _overlaps(world: World) -> set[tuple[int, int]]:
    places = world.bodies.motion[[actor.row for actor in world.cars.actors]][:, [X, Y, YAW]]
    gaps = np.hypot(*(places[:, None, :2] - places[None, :, :2]).transpose(2, 0, 1))
    pairs = np.argwhere(np.triu(gaps < FAR, 1)).tolist()
    boxes = {number: rectangle(world.bodies, world.cars.actors[number]) for pair in pairs for number in pair}
    return {(first, second) for first, second in pairs if overlap(boxes[first], boxes[second]) is not None}


def main() -> None:
    """Run the command."""
    settings = tyro.cli(Expert, description=__doc__)
    logging.basicConfig(level=logging.INFO if settings.verbose else logging.WARNING, format="%(message)s")
    folder = str(Path(settings.towns).resolve()) if settings.towns else ""
    catalogue = Catalogue(folder, flatten=True)
    if settings.watch:
        for name in settings.only or tuple(catalogue.files) or WATCHED:
            seen = watch_traffic(catalogue, name, settings.traffic, settings.minutes)
            told = f"{seen['overlaps']} overlaps, {seen['reds']} reds"
            print(f"{name}: {seen['cars']} cars of the traffic in {settings.minutes:g} min: {told}", flush=True)
        return
    if not settings.towns:
        for name in settings.suites:
            first, count, arguments = SUITES[name]
            task = {"town": "TownTest-v0", "ring": "RingTest-v0", "highway": "HighwayTest-v0"}[name.partition("-")[0]]
            ends = drive(task, first, settings.routes or count, traffic=settings.traffic, **arguments)
            print(f"{name}: {ends}", flush=True)
        return
    for name in settings.only or tuple(catalogue.files):
        ends = drive("Town-v0", 900_000, settings.routes or 50, map=name, maps=folder, traffic=settings.traffic)
        print(f"{name}: {ends}", flush=True)


if __name__ == "__main__":
    main()
