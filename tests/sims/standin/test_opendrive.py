"""OpenDRIVE as editors of maps write it: curves of all kinds, several sections and widths of a lane, shifted middle lines."""

import json
import subprocess
import sys
from itertools import groupby

import numpy as np
import pytest

from carla_standin.errors import InvalidMap
from carla_standin.maps.curves import Cubic, Spiral
from carla_standin.maps.opendrive_reader import from_opendrive
from carla_standin.maps.roads import Piece
from carla_standin.maps.town import Town

PIECES = (
    (40.0, "<line/>", 0.0, None),
    (20.0, '<spiral curvStart="0" curvEnd="0.025"/>', 0.0, Spiral(0.0, 0.025, 20.0)),
    (30.0, '<arc curvature="0.025"/>', 0.025, None),
    (20.0, '<spiral curvStart="0.025" curvEnd="-0.01"/>', 0.0, Spiral(0.025, -0.01, 20.0)),
)
"""Length [m], element, curvature and shape of the first pieces of a road."""
U, V = (0.0, 60.0, -1.0, 0.0), (0.0, 0.0, 8.0, -3.0)
CHECK = """
import carla, json, sys
made, told = carla.Map("made", sys.stdin.readline().replace("\\x00", "\\n")), []
for x, y, road, lane in json.loads(sys.stdin.readline()):
    found = made.get_waypoint(carla.Location(x, y, 0))
    place, right = found.transform.location, found.transform.get_right_vector()
    told.append([found.road_id == road and found.lane_id == lane, abs((place.x - x) * right.x + (place.y - y) * right.y)])
for point in made.generate_waypoints(2.0):
    point.next(10.0), point.previous(10.0), point.get_left_lane(), point.left_lane_marking, point.lane_change
widths = sorted({round(point.lane_width, 2) for point in made.generate_waypoints(1.0)})
links = sorted({(a.road_id, a.section_id, a.lane_id, b.road_id, b.section_id, b.lane_id) for a, b in made.get_topology()})
print(json.dumps([told, widths, links]))
"""


def lane(number: int, widths: str, links: str = "", mark: str = "", kind: str = "driving") -> str:
    return f'<lane id="{number}" type="{kind}" level="false"><link>{links}</link>{widths}{mark}</lane>'


def width(begin: float, a: float, b: float = 0.0, c: float = 0.0, d: float = 0.0) -> str:
    return f'<width sOffset="{begin}" a="{a}" b="{b}" c="{c}" d="{d}"/>'


def section(begin: float, left: str, right: str) -> str:
    centre = '<center><lane id="0" type="none"><roadMark sOffset="0" type="solid" laneChange="none"/></lane></center>'
    return f'<laneSection s="{begin}"><left>{left}</left>{centre}<right>{right}</right></laneSection>'


def linked(before: int | None, after: int | None) -> str:
    ends = (("predecessor", before), ("successor", after))
    return "".join(f'<{tag} id="{number}"/>' for tag, number in ends if number is not None)


def geometry(s: float, pose: tuple[float, float, float], length: float, element: str) -> str:
    x, y, heading = pose
    return f'<geometry s="{s}" x="{x!r}" y="{y!r}" hdg="{heading!r}" length="{length!r}">{element}</geometry>'


def drawn() -> str:
    """Return a map of two roads one after the other, the first with three sections."""
    pose, s, plan = (5.0, -7.0, 0.3), 0.0, ""
    for length, element, curvature, shape in PIECES:
        plan += geometry(s, pose, length, element)
        pose = tuple(float(value[0]) for value in Piece(*pose, length, curvature, shape).at(np.array([length])))
        s += length
    reach = Cubic(U, V, 1.0, 60.0).reach
    names = [*(f"{key}U" for key in "abcd"), *(f"{key}V" for key in "abcd")]
    texts = " ".join(f'{name}="{value}"' for name, value in zip(names, (*U, *V), strict=True))
    plan += geometry(s, pose, reach, f'<paramPoly3 {texts} pRange="normalized"/>')
    shape = Cubic(U, V, 1.0, reach)
    pose = tuple(float(value[0]) for value in Piece(*pose, reach, 0.0, shape).at(np.array([reach])))
    length = s + reach
    wide = width(0, 3.5)
    taper = width(0, 0.0, 0.0, 3 * 3.5 / 400, -2 * 3.5 / 8000) + width(20, 3.5)
    broken = '<roadMark sOffset="0" type="broken" laneChange="both"/><roadMark sOffset="15" type="solid" laneChange="none"/>'
    sections = (
        section(0, lane(1, wide, linked(None, 1)), lane(-1, wide, linked(None, -1), broken))
        + section(
            50,
            lane(1, wide, linked(1, 1)),
            lane(-1, width(0, 3.5) + width(30, 3.5, -0.01), linked(-1, -1), broken) + lane(-2, taper, linked(None, -2)),
        )
        + section(
            100,
            lane(1, wide, linked(1, 1)),
            lane(-1, width(0, 3.3), linked(-1, -1)) + lane(-2, wide, linked(-2, -2)) + lane(-3, width(0, 0), kind="none"),
        )
    )
    offset = '<laneOffset s="0" a="0" b="0" c="0" d="0"/><laneOffset s="60" a="0" b="0" c="0.0075" d="-0.00025"/>'
    offset += '<laneOffset s="80" a="1" b="0" c="0" d="0"/>'
    speed = '<type s="0" type="town"><speed max="40" unit="mph"/></type>'
    light = '<signals><signal id="9" s="120" t="-9" type="1000001" dynamic="yes" orientation="+" zOffset="5"/></signals>'
    first = f'<road name="a" id="5" junction="-1" length="{length!r}"><link><successor elementType="road" elementId="6"'
    first += f' contactPoint="start"/></link>{speed}<planView>{plan}</planView><elevationProfile/><lanes>{offset}{sections}'
    first += f"</lanes>{light}</road>"
    rest = geometry(0, pose, 50.0, '<poly3 a="0" b="0" c="0.002" d="-0.00002"/>')
    lanes = '<laneOffset s="0" a="1" b="0" c="0" d="0"/>'
    lanes += section(
        0, lane(1, wide, linked(1, None)), lane(-1, width(0, 3.3), linked(-1, None)) + lane(-2, wide, linked(-2, None))
    )
    second = '<road name="b" id="6" junction="-1" length="50.0"><link><predecessor elementType="road" elementId="5"'
    second += f' contactPoint="end"/></link>{speed}<planView>{rest}</planView><lanes>{lanes}</lanes></road>'
    return f'<OpenDRIVE><header revMajor="1" revMinor="4"/>{first}{second}</OpenDRIVE>'


def asked(town: Town) -> tuple[list[tuple[bool, float]], list[float], list[list[int]]]:
    """Return what the client finds at points of the lanes of the stand-in, its widths and its links."""
    pytest.importorskip("carla", reason="no wheel here")
    roads = {road.id: road for road in town.road_map.roads}
    points = [
        (float(x), float(y), roads[way.road].number, way.lane)
        for way in town.lanes.ways
        for x, y, _ in way.points[2:-2:5]
        if not (way.opens or way.closes)
    ]
    told = town.text.replace("\n", "\x00") + "\n" + json.dumps(points) + "\n"
    done = subprocess.run([sys.executable, "-c", CHECK], input=told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_editor_maps_give_client_and_server_same_roads():
    town = Town(from_opendrive(drawn()))
    assert [(road.number, round(road.begin)) for road in town.road_map.roads] == [(5, 0), (5, 50), (5, 100), (6, 0)]
    told, widths, links = asked(town)
    assert len(told) > 50 and all(same for same, _ in told)
    assert max(gap for _, gap in told) < 0.02  # across the lane
    assert {3.3, 3.5} <= set(widths) and min(widths) < 1.0
    assert [5, 0, -1, 5, 1, -1] in links and [5, 1, -2, 5, 2, -2] in links and [5, 2, -2, 6, 0, -2] in links
    again = Town(from_opendrive(town.text))
    assert again.text == town.text


def test_reading_keeps_widths_marks_and_offsets():
    text = Town(from_opendrive(drawn())).text
    assert text.count("<laneSection") == 4 and text.count("<width") == 14 and text.count("<laneOffset") == 4
    assert text.count('sOffset="15.0"') == 2 and "<spiral" in text and "<paramPoly3" in text and "<poly3" in text


@pytest.mark.slow
def test_cars_drive_on_maps_of_editors(client):
    result = client(
        f"""
        made = client.generate_opendrive_world({drawn()!r})
        settings = made.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
        made.apply_settings(settings)
        town = made.get_map()
        start = next(p for p in town.get_spawn_points() if town.get_waypoint(p.location).section_id == 0
                     and town.get_waypoint(p.location).lane_id == -1 and town.get_waypoint(p.location).road_id == 5)
        blueprint = library.find("vehicle.tesla.model3")
        blueprint.set_attribute("driver", "traffic")
        made.set_weather(made.get_weather())
        vehicle = made.spawn_actor(blueprint, start)
        lights = list(made.get_actors().filter("traffic.traffic_light"))
        result["lights"] = len(lights)
        lights[0].set_state(carla.TrafficLightState.Green)
        lights[0].freeze(True)
        seen, aside = [], 0.0
        for _ in range(500):
            made.tick()
            here = town.get_waypoint(vehicle.get_location())
            seen.append([here.road_id, here.section_id])
            aside = max(aside, here.transform.location.distance(vehicle.get_location()))
        result["seen"], result["aside"] = seen, aside
        result["limit"] = vehicle.get_speed_limit()
        """
    )
    passed = [place for place, _ in groupby(result["seen"])]
    assert passed == [[5, 0], [5, 1], [5, 2], [6, 0]] and result["aside"] < 2.0
    assert result["lights"] == 1 and result["limit"] == 64


@pytest.mark.parametrize(
    ("pattern", "instead", "message"),
    [
        ("<elevationProfile/>", '<elevationProfile><elevation s="0" a="3" b="0.1"/></elevationProfile>', "ground .* is level"),
        ('<laneSection s="50"', '<laneSection s="0"', "do not follow each other"),
        ('<laneSection s="100"', '<laneSection s="999"', "do not follow each other"),
        ("<paramPoly3", '<paramPoly3 x="" ', None),
        ('bU="60.0"', 'bU="6.0"', "not as long as it says"),
        ('curvEnd="0.025"', 'curvEnd="inf"', "no number 'curvEnd'"),
        ('<predecessor id="-2"/><successor id="-2"/>', '<predecessor id="-7"/>', "leads to lane -7"),
        ('<width sOffset="0" a="3.3"', '<width sOffset="1" a="3.3"', "no width from its beginning"),
    ],
)
def test_maps_of_editors_that_are_broken_are_refused(pattern, instead, message):
    text = drawn().replace(pattern, instead, 1)
    assert text != drawn()
    if message is None:
        Town(from_opendrive(text))
        return
    with pytest.raises(InvalidMap, match=message):
        Town(from_opendrive(text))


def test_ground_that_is_flat_within_centimetres_is_flat():
    hilly = drawn().replace(
        "<elevationProfile/>", '<elevationProfile><elevation s="0" a="0.01" b="-0.0001"/></elevationProfile>'
    )
    assert Town(from_opendrive(hilly)).text == Town(from_opendrive(drawn())).text


def test_spiral_is_the_integral_of_its_curvature():
    s = np.linspace(0, 40, 4001)
    x, y, heading = Spiral(-0.01, 0.05, 40.0).at(s)
    assert heading == pytest.approx(-0.01 * s + 0.5 * 0.06 / 40 * s * s)
    assert np.hypot(np.diff(x), np.diff(y)) == pytest.approx(0.01, rel=1e-6)
    assert np.arctan2(np.diff(y), np.diff(x)) == pytest.approx((heading[1:] + heading[:-1]) / 2, abs=1e-6)


def test_cubic_is_measured_along_its_curve():
    curve = Cubic((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.02, 0.0), 50.0, 50.0, "poly3")
    x, y, heading = curve.at(np.linspace(0, 50, 501))
    assert np.hypot(np.diff(x), np.diff(y)) == pytest.approx(0.1, rel=1e-3)
    assert y == pytest.approx(0.02 * x * x) and heading == pytest.approx(np.arctan(0.04 * x))
    assert curve.bends[1] == pytest.approx(0.04)


CONVERT = """
import carla, sys
settings = carla.Osm2OdrSettings()
settings.generate_traffic_lights = True
open(sys.argv[1], "w").write(carla.Osm2Odr.convert(sys.stdin.read(), settings))
"""


def streets(size: int = 4) -> str:
    """Return streets of OpenStreetMap that are not quite a grid, one node with a traffic light."""
    chance = np.random.default_rng(1)
    signal, nodes, ways = '<tag k="highway" v="traffic_signals"/>', "", ""
    for number in range(size * size):
        aside, along = chance.uniform(-1e-4, 1e-4, 2)
        east, north = 8.0 + 0.0017 * (number % size) + aside, 49.0 + 0.0012 * (number // size) + along
        light = signal if number == size + 1 else ""
        nodes += f'<node id="{number + 1}" lat="{north}" lon="{east}" version="1">{light}</node>'
    grid = np.arange(size * size).reshape(size, size) + 1
    for number, row in enumerate([*grid, *grid.T]):
        places = "".join(f'<nd ref="{node}"/>' for node in row)
        lanes = 4 if number in (0, 2) else 2
        kind = f'<tag k="highway" v="residential"/><tag k="lanes" v="{lanes}"/>'
        ways += f'<way id="{100 + number}" version="1">{places}{kind}</way>'
    bounds = '<bounds minlat="48.99" minlon="7.99" maxlat="49.01" maxlon="8.02"/>'
    return f'<osm version="0.6">{bounds}{nodes}{ways}</osm>'


@pytest.mark.slow
def test_maps_of_carlas_converter_load_and_agree(tmp_path):
    pytest.importorskip("carla", reason="no wheel here")
    path = tmp_path / "streets.xodr"
    command = [sys.executable, "-c", CONVERT, str(path)]
    done = subprocess.run(command, input=streets(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    town = Town(from_opendrive(path.read_text()))
    assert len(town.spawn_points) > 50
    told, _, links = asked(town)
    along = [same for same, _ in told]
    assert len(along) > 500 and np.mean(along) > 0.9  # in junctions lanes lie on each other, and a place is on several
    assert len(links) > 50
