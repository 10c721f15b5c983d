"""What the command that drives with the expert counts."""

import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin.layouts import TrafficLightState
from carla_standin.local_streams import LocalStreams
from carla_standin.maps.catalogue import Catalogue, town
from carla_standin.population import Population
from carla_standin.world import World
from robo_bench.expert_driving import Ends, _fronts, _overlaps, _passed_red, watch_traffic


def test_own_traffic_neither_overlaps_nor_runs_reds():
    seen = watch_traffic(Catalogue(), "grid", 10, 0.25)
    assert seen["cars"] == 10 and seen["overlaps"] == seen["reds"] == 0


def test_overlaps_and_reds_are_seen():
    world = World(town("grid"), LocalStreams())
    Population(4, 0, 0).spawn(world)
    assert _overlaps(world) == set()
    rows = [actor.row for actor in world.cars.actors]
    world.bodies.motion[rows[1]] = world.bodies.motion[rows[0]]
    assert _overlaps(world) == {(0, 1)}
    lit = int(np.flatnonzero(world.lights.of_way >= 0)[0])
    world.cars.way[0], world.cars.s[0] = lit, world.cars.lanes.length[lit] - 4.0
    (before, *_), light = _fronts(world), world.lights.of_way[lit]
    world.cars.s[0] += 3.0
    (after, *_) = _fronts(world)
    for colour, passed in ((TrafficLightState.RED, True), (TrafficLightState.GREEN, False)):
        world.lights.colours[light] = colour
        assert _passed_red(world, before, after) is passed and not _passed_red(world, before, before)


def test_ends_say_which_seeds_failed():
    assert str(Ends(2, 3, {"blocked": [7]})) == "2 of 3 finished; 1 blocked (7)"
