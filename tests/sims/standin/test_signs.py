"""Stop signs and signs to give way: landmarks and actors of the client, and what the server's own traffic does at them."""

import re

import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin.layouts import Tag
from carla_standin.maps.catalogue import town
from carla_standin.maps.grid import STOP, YIELD
from carla_standin.maps.opendrive_reader import from_opendrive
from carla_standin.maps.town import Town
from carla_standin.population import Population
from carla_standin.world import World

LOOK = """
    def look(world):
        town, found = world.get_map(), {}
        for kind, name in (("206", "traffic.stop"), ("205", "traffic.yield")):
            marks = town.get_all_landmarks_of_type(kind)
            actors = list(world.get_actors().filter(name + "*"))
            ends = [p for a, b in town.get_topology() if b.is_junction and not a.is_junction
                    for p in a.next_until_lane_end(0.5)[-8:]]
            above = carla.Location(z=0.5)
            inside = {a.id: {(p.road_id, p.lane_id) for p in ends
                             if a.trigger_volume.contains(p.transform.location + above, a.get_transform())} for a in actors}
            signed = {m.id: {(m.road_id, lane) for low, high in m.get_lane_validities() for lane in range(low, high + 1)}
                      for m in marks}
            pairs = {m.id: world.get_traffic_sign(m).id for m in marks}
            seen = sum(any(l.id == m.id for l in p.get_landmarks_of_type(20.0, kind)) for m in marks for p in
                       [town.get_waypoint_xodr(m.road_id, min(signed[m.id])[1], 15.0 if m.s < 15 else m.s - 15.0)])
            found[name] = dict(marks=len(marks), actors=len(actors), types=sorted({type(a).__name__ for a in actors}),
                agree=all(inside[pairs[m.id]] == signed[m.id] for m in marks), distinct=len(set(pairs.values())), seen=seen)
        return found
"""


class Nobody:
    """Streams that nobody hears."""

    port, may_drop = 2001, False

    def is_heard(self, stream: int) -> bool:
        return False

    def send(self, stream: int, *parts: bytes) -> None:
        raise AssertionError


def signs_of(name: str, kind: str) -> int:
    return sum(signal.type == kind for road in town(name).road_map.roads for signal in road.signals)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stops"), [("stops", True), ("grid", False)])
def test_signs_are_landmarks_and_actors_of_the_client(program, name, stops):
    result = program(LOOK + "\n    result.update(look(world))", map=name)
    for kind, type_id in ((STOP, "traffic.stop"), (YIELD, "traffic.yield")):
        count = signs_of(name, kind)
        assert (count > 3) is (stops == (kind == STOP))
        expected = {"marks": count, "actors": count, "distinct": count, "seen": count, "agree": True}
        assert {key: result[type_id][key] for key in expected} == expected
        assert result[type_id]["types"] == (["TrafficSign"] if count else [])


@pytest.mark.slow
def test_maps_that_are_loaded_keep_their_signs(program, tmp_path):
    text = re.sub(r'type="205"', 'type="206"', town("grid").text, count=3)
    assert Town(from_opendrive(text)).text.count('type="206"') == 3
    (tmp_path / "map.xodr").write_text(text)
    load = f"    made = client.generate_opendrive_world(open({str(tmp_path / 'map.xodr')!r}).read())\n"
    result = program(f"{LOOK}\n{load}    result.update(look(made))")
    left = signs_of("grid", YIELD) - 3
    assert [result[f"traffic.{kind}"]["actors"] for kind in ("stop", "yield")] == [3, left]
    assert all(result[f"traffic.{kind}"]["agree"] for kind in ("stop", "yield"))


@pytest.mark.slow
def test_cars_stand_at_stop_signs_for_a_second_and_go_on():
    world = World(town("stops"), Nobody())
    Population(16, 0, 0).spawn(world)
    cars, halts, lanes = world.cars, world.town.junctions.halts, world.town.lanes
    count = len(cars)
    stood, passed, before = np.zeros(count), [], cars.way.copy()
    for _ in range(round(120 / 0.05)):
        world.tick()
        entered = (cars.way != before) & halts[before] & lanes.crossing[cars.way]
        passed += stood[entered].tolist()
        at_line = halts[cars.way] & (lanes.length[cars.way] - cars.s - cars.half < 3.0)
        stood = np.where(at_line, stood + 0.05 * (cars.speed < 0.1), 0.0)
        before = cars.way.copy()
    assert len(passed) > 10 and min(passed) >= 0.95


def test_signs_do_not_change_what_is_drawn_by_chance():
    world = World(town("grid"), Nobody())
    assert len(world.signs) > 3
    car = world.spawn([1, "vehicle.tesla.model3", []], world.town.spawn_points[0])
    assert car.place == 2 + len(world.lights)  # after the spectator and the lights


def test_stop_signs_are_seen_and_have_stop_lines():
    world = World(town("stops"), Nobody())
    tags = world.scene.boxes.tags
    assert np.count_nonzero(tags == Tag.TRAFFIC_SIGN) == len(world.signs.stops()) == signs_of("stops", STOP)
    assert not (World(town("grid"), Nobody()).scene.boxes.tags == Tag.TRAFFIC_SIGN).any()
    post = world.signs.stops()[0]
    s = np.array([post.road.length - 0.5 if post.signal.orientation == "+" else 0.5])
    inner, outer = post.road.edges(post.stops[0][1], s)
    x, y, _ = post.road.beside(s, (inner + outer) / 2)
    assert world.town.ground.labels.ravel()[world.town.ground.at(np.stack([x, -y], axis=1))] == [Tag.ROAD_LINE]


@pytest.mark.slow
def test_signs_cannot_be_destroyed(program):
    result = program(
        """
        sign = world.get_actors().filter("traffic.stop")[0]
        try:
            result["done"] = sign.destroy()
        except RuntimeError as error:
            result["done"] = str(error)
        world.tick()
        result["left"] = len(world.get_actors().filter("traffic.stop"))
        """,
        map="stops",
    )
    assert result["left"] == signs_of("stops", STOP) and (
        result["done"] is False or "belongs to the map" in str(result["done"])
    )
