"""Crosswalks: where the client has them, what reading keeps of them, and what is painted."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest

from carla_standin.errors import InvalidMap
from carla_standin.layouts import Tag
from carla_standin.maps.catalogue import town
from carla_standin.maps.opendrive_reader import from_opendrive
from carla_standin.maps.town import Town

READ = """
import carla, json, sys
made = carla.Map("made", sys.stdin.read())
def place(waypoint):
    return [waypoint.transform.location.x, waypoint.transform.location.y]
ends = [(a, b) for a, b in made.get_topology() if b.is_junction and not a.is_junction]
lanes = {(a.road_id, a.lane_id): place(a.next_until_lane_end(0.1)[-1]) for a, b in ends}
kinds = {"road": carla.LaneType.Driving, "pavement": carla.LaneType.Sidewalk}
zones = [[point.x, point.y, point.z] for point in made.get_crosswalks()]
def on(kind):
    return [made.get_waypoint(carla.Location(*zone), False, kind) is not None for zone in zones]
print(json.dumps({"zones": zones, "lanes": list(lanes.values()), **{name: on(kind) for name, kind in kinds.items()}}))
"""
OWN = (
    '<object id="zebra" name="Zebra7" type="crosswalk" s="20.0" t="1.5" zOffset="0.0" hdg="0.7" pitch="0" roll="0"'
    ' orientation="none" width="4" length="6"><outline><cornerLocal u="-2" v="-1" z="0"/><cornerLocal u="4" v="-1" z="0"/>'
    '<cornerLocal u="4" v="3" z="0"/><cornerLocal u="-2" v="-1" z="0"/></outline></object>'
)


def read(text: str) -> dict[str, list]:
    """Return what the client says, in a process of its own."""
    pytest.importorskip("carla", reason="no wheel here")
    done = subprocess.run([sys.executable, "-c", READ], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def polygons(points: list[list[float]]) -> list[np.ndarray]:
    """Return the polygons of a list of points, each of which ends where its first point comes again."""
    found, begin = [], 0
    for number, point in enumerate(points):
        if number > begin and point == points[begin]:
            found.append(np.array(points[begin : number + 1])[:, :2])
            begin = number + 1
    assert begin == len(points)  # all are closed
    return found


def with_object(element: str) -> str:
    return town("ring").text.replace("<objects />", f"<objects>{element}</objects>", 1)


@pytest.mark.parametrize("name", ["grid", "grid_train_0", "stops_test_1"])
def test_crosswalks_lie_across_each_arm_of_a_junction(name):
    seen = read(town(name).text)
    found = polygons(seen["zones"])
    junctions = [junction for junction in town(name).road_map.junctions if len({c.incoming for c in junction.connections}) > 2]
    assert len(found) == sum(len({way.incoming for way in junction.connections}) for junction in junctions) > 10
    crossed = [sum(cv2.pointPolygonTest(zone.astype(np.float32), lane, False) >= 0 for lane in seen["lanes"]) for zone in found]
    wide = town(name).road_map.roads[0].lanes[-1].id  # the pavement: lanes and one more
    assert set(crossed) == {abs(wide) - 1}  # the ends of all lanes into the junction, of this arm alone
    near = np.array(seen["pavement"]).reshape(-1, 5)[:, :4].sum(1)
    assert (near == 2).all() and not np.array(seen["road"]).reshape(-1, 5)[:, [0, 3]].all(1).any()


def test_reading_keeps_the_crosswalks_of_a_map():
    made = Town(from_opendrive(with_object(OWN)))
    assert Town(from_opendrive(made.text)).text == made.text and 'name="Zebra7"' in made.text and 'id="zebra"' in made.text
    given, written = (read(text)["zones"] for text in (with_object(OWN), made.text))
    assert len(given) == 4 and written == given
    (crosswalk,) = made.road_map.roads[0].crosswalks
    assert np.abs(made.road_map.roads[0].outline(crosswalk) * (1, -1) - np.array(given)[:, :2]).max() < 1e-4


@pytest.mark.parametrize(
    ("old", "new"),
    [('s="20.0"', 's="1e6"'), ('u="4"', 'u="1e9"'), ('v="3"', 'v="nan"'), ('t="1.5"', 't="x"')],
)
def test_crosswalks_without_a_place_are_refused(old, new):
    with pytest.raises(InvalidMap, match=r"crosswalk|cornerLocal|object"):
        Town(from_opendrive(with_object(OWN.replace(old, new))))


BARE = '<object id="1" type="crosswalk" s="20" t="0"/>'


@pytest.mark.parametrize("element", [BARE, OWN.replace('v="3"', 'v="-1"')])
def test_crosswalks_without_a_polygon_are_left_out(element):
    assert "crosswalk" not in Town(from_opendrive(with_object(element))).text


def test_crosswalks_are_painted_in_bars_across_the_lanes():
    made = town("grid")
    road = next(road for road in made.road_map.roads if road.crosswalks)
    (x, y), heading = (road.outline(road.crosswalks[0])[:4].mean(0)), float(road.at(np.zeros(1))[2][0])
    across = np.linspace(-3.4, 3.4, 200)
    places = np.stack([x - across * np.sin(heading), -(y + across * np.cos(heading))], axis=1)
    labels = made.ground.labels.ravel()[made.ground.at(places)]
    assert set(labels) == {Tag.ROAD, Tag.ROAD_LINE} and 0.4 < (labels == Tag.ROAD_LINE).mean() < 0.6
    assert 12 <= np.count_nonzero(np.diff((labels == Tag.ROAD_LINE).astype(int))) <= 15  # bars and gaps of half a metre
