"""Every map that is generated is sound and loads in the client; what is broken is refused before the client sees it."""

import random
import re
import subprocess
import sys

import numpy as np
import pytest

from carla_standin.errors import InvalidMap, UnknownMap
from carla_standin.maps.catalogue import KINDS, NAMES, SETS, town
from carla_standin.maps.opendrive_reader import from_opendrive
from carla_standin.maps.ring import Ring
from carla_standin.maps.town import Town

SOME = [name for name in NAMES if name[-1] not in "4567"]
LOAD = """
import carla, pathlib, sys
for path in sys.argv[1:]:
    made = carla.Map("made", pathlib.Path(path).read_text())
    points, zones = made.generate_waypoints(5.0), made.get_crosswalks()
    for point in points[::7]:
        point.next(20.0), point.previous(20.0), point.get_left_lane(), point.get_landmarks(30.0)
    print(pathlib.Path(path).stem, len(made.get_topology()), len(points), flush=True)
"""


def loaded(paths, program: str = LOAD) -> dict[str, list[int]]:
    """Returns what the client says of maps, each named by its file; a crash fails the test."""
    pytest.importorskip("carla", reason="no wheel here")
    command = [sys.executable, "-c", program, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-500:]}"
    return {
        name: [int(topology), int(points)] for name, topology, points in (line.split() for line in done.stdout.splitlines())
    }


@pytest.mark.slow
def test_all_maps_load_in_client_with_written_links(tmp_path):
    for name in SOME:
        (tmp_path / f"{name}.xodr").write_text(town(name).text)
    seen = loaded(sorted(tmp_path.iterdir()))
    assert set(seen) == set(SOME)
    for name in SOME:
        if not name.startswith("highway"):  # the client also counts lanes that end
            assert seen[name][0] == sum(len(way.successors) for way in town(name).lanes.ways)


@pytest.mark.slow
def test_every_lane_continues_and_spawn_points_lie_on_lanes():
    for name in NAMES:
        lanes = town(name).lanes
        assert all(way.successors or way.closes for way in lanes.ways), name
        assert len(town(name).spawn_points) >= 20
        for (x, y, _), (_, yaw, _) in town(name).spawn_points[::11]:
            assert lanes.nearest(x, y, np.radians(yaw))[2] < 1e-3


@pytest.mark.slow
def test_sets_share_no_map_and_a_name_is_always_the_same_map():
    drawn = {(kind, which): [town(f"{kind}_{which}_{n}").text for n in range(8)] for kind in KINDS for which in SETS}
    for kind in KINDS:
        texts = [re.sub(r'name="[^"]*"', "", text) for which in SETS for text in drawn[kind, which]]
        assert len(set(texts)) == len(texts)
    town.cache_clear()
    assert town("grid_test_3").text == drawn["grid", "test"][3]
    with pytest.raises(UnknownMap, match="did you mean 'grid'"):
        town("gird")


@pytest.mark.slow
def test_lanes_run_on_where_the_last_one_ends():
    for name in ("ring", "grid", "highway", "grid_train_6"):
        lanes = town(name).lanes
        for way in lanes.ways:
            for after in way.successors:
                gap = lanes.ways[after].points[0] - way.points[-1]
                assert np.hypot(*gap[:2]) < 0.01 and abs(np.remainder(gap[2] + np.pi, 2 * np.pi) - np.pi) < 0.05


BREAKS = {
    "lane link": (r'<laneLink from="-1" to="-1"', '<laneLink from="-1" to="-4"', "leads to lane -4"),
    "from lane": (r'<laneLink from="-1" to="-1"', '<laneLink from="-5" to="-1"', "links lane -5"),
    "successor": (r'<successor id="-1"', '<successor id="1"', "driven the other way"),
    "road link": (r'elementType="road" elementId="0"', 'elementType="road" elementId="777"', "which is not there"),
    "contact": (r'contactPoint="end"', 'contactPoint="start"', "which does not lead back|do not meet|driven the other way"),
    "junction": (
        r'elementType="junction" elementId="1000"',
        'elementType="junction" elementId="5"',
        "junction 5, which is not",
    ),
    "place": (r' x="(-?[\d.]+)"', ' x="1e4"', "do not meet|gap"),
    "turned": (r' hdg="0.0" length', ' hdg="0.01" length', "do not meet"),
    "length": (r'<road name="road 0" length="[\d.]+"', '<road name="road 0" length="7.0"', "not that of its pieces"),
    "number": (r'curvature="[-\d.e]+"', 'curvature="nan"', "no number 'curvature'"),
    "shape": (r"<line />", "<bezier a='0' />", "more than the stand-in reads"),
    "controller": (r'signalId="\d+"', 'signalId="7"', "signals [7] that are not there"),
    "entities": (r"<OpenDRIVE>", "<!DOCTYPE a [<!ENTITY b 'c'>]><OpenDRIVE>", "XML entities"),
    "root": (r"OpenDRIVE", "Something", "no OpenDRIVE"),
    "width": (r'<width sOffset="0.0" a="3.5"', '<width sOffset="0.0" a="-3.5"', "m wide"),
    "incoming": (r'incomingRoad="\d+"', 'incomingRoad="999"', "which is not there"),
    "same id": (r'<road name="road 1" (.*?) id="1"', r'<road name="road 1" \1 id="0"', "same id"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_map_is_refused_with_its_place(what):
    pattern, instead, message = BREAKS[what]
    text = town("grid").text
    broken = re.sub(pattern, instead, text) if what == "root" else re.sub(pattern, instead, text, count=1)
    assert broken != text
    with pytest.raises(InvalidMap, match=message.replace("[7]", r"\[7\]")):
        Town(from_opendrive(broken))


@pytest.mark.slow
def test_mutated_valid_maps_do_not_crash_client(tmp_path):
    chance, count = random.Random(0), 0
    for number in range(200):
        name = chance.choice(["ring", "grid_train_4", "highway"])
        text = town(name).text
        places = list(re.finditer(r'(\w+)="([^"]*)"', text))
        place = chance.choice(places)
        value = chance.choice(["", "-1", "0", "1", "7", "-3", "1e9", "nan", "start", "end", "road", "junction", "none"])
        changed = text[: place.start(2)] + value + text[place.end(2) :]
        try:
            made = Town(from_opendrive(changed))
        except InvalidMap:
            count += 1
            continue
        (tmp_path / f"{number}.xodr").write_text(made.text)
    assert count > 50 and len(loaded(sorted(tmp_path.iterdir()))) == 200 - count


CHANGES = """
import carla, pathlib, sys
def wrong(waypoint):
    for side, lane in ((carla.LaneChange.Left, waypoint.get_left_lane()), (carla.LaneChange.Right, waypoint.get_right_lane())):
        if waypoint.lane_change & side and (lane is None or lane.lane_id * waypoint.lane_id < 0):
            return True
for path in sys.argv[1:]:
    points = carla.Map("made", pathlib.Path(path).read_text()).generate_waypoints(3.0)
    changes = sum(point.lane_change != carla.LaneChange.NONE for point in points)
    print(pathlib.Path(path).stem, sum(map(bool, map(wrong, points))), changes, flush=True)
"""


@pytest.mark.slow
def test_maps_permit_no_change_into_oncoming_lanes(tmp_path):
    for name in SOME:
        (tmp_path / f"{name}.xodr").write_text(town(name).text)
    seen = loaded(sorted(tmp_path.iterdir()), CHANGES)
    assert {name: wrong for name, (wrong, _) in seen.items() if wrong} == {}
    assert seen["ring"][1] == 0 and seen["ring_train_1"][1] > 50 and seen["highway"][1] > 50  # one lane a side; two


@pytest.mark.parametrize("change", ["none", "both", "increase", "decrease", None])
def test_reading_keeps_the_lane_changes_of_a_line(change):
    given = "" if change is None else f' laneChange="{change}"'
    text = re.sub(r' laneChange="[^"]*"', given, town("highway").text)
    assert re.findall(r' laneChange="[^"]*"', Town(from_opendrive(text)).text) == (
        [given] * text.count("roadMark") if given else []
    )


def test_a_shape_of_ones_own_is_checked_too():
    with pytest.raises(InvalidMap, match="folds over itself"):
        Town(Ring(radius=5.0, lanes=2).build("tight"))
