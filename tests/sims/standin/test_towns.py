"""CARLA's own towns, as the editor wrote them, and what editors write that our own maps do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from carla_standin.errors import InvalidMap, InvalidOption, UnknownMap
from carla_standin.maps.catalogue import Catalogue, town
from carla_standin.maps.opendrive_reader import from_opendrive
from carla_standin.maps.roads import piecewise
from carla_standin.maps.town import Town
from tests.sims.standin.test_maps import loaded
from tests.sims.standin.test_opendrive import drawn, lane, linked, section, width

TOWNS = {"Town01": 36, "Town02": 24, "Town04": 43, "Town07": 17}
"""Town -> its traffic lights."""


@pytest.fixture
def towns() -> Path:
    data = os.environ.get("ROBO_RL_REFERENCE_DATA", "")
    if not data:
        pytest.skip("CARLA's towns are not here: ROBO_RL_REFERENCE_DATA names the folder with carla_towns/Town01.xodr")
    return Path(data) / "carla_towns"


@pytest.mark.slow
@pytest.mark.parametrize("name", TOWNS)
def test_towns_of_carla_load_in_server_and_client(towns, tmp_path, name):
    made = Catalogue(str(towns), flatten=True).town(name)
    lanes = made.lanes
    assert all(way.successors for way in lanes.ways) and len(made.spawn_points) > 50
    path = tmp_path / f"{name}.xodr"
    path.write_text(made.text)
    links, points = loaded([path])[name]
    original = loaded([towns / f"{name}.xodr"])[name]
    assert [links, points] == original  # the client sees the same roads in the file and in ours
    assert links == sum(len(way.successors) for way in lanes.ways)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOWNS)
def test_every_light_of_a_town_counts(towns, name):
    made = Catalogue(str(towns), flatten=True).town(name)
    lights = [signal for road in made.road_map.roads for signal in road.signals if signal.type == "1000001"]
    assert len(lights) == TOWNS[name]
    for light in lights:
        ways = made.signal_ways.of(light.id)
        assert ways and not made.lanes.crossing[ways].any()
        assert all(made.lanes.crossing[list(made.lanes.ways[way].successors)].any() for way in ways)


def test_links_of_undriven_lanes_may_be_broken():
    """Red before: "road 0 lane -2 leads to lane 2 of road 1, which is driven the other way"."""
    text = town("ring").text
    after = '<lane id="-2" type="sidewalk" level="false">\n<link>\n<predecessor id="-2" />\n<successor id='
    assert text.count(after + '"-2"') == 4
    for target in ("2", "-7"):
        made = Town(from_opendrive(text.replace(after + '"-2"', f'{after}"{target}"', 1)))
        assert made.text.count("<successor id=") == text.count("<successor id=") - 1
    assert Town(from_opendrive(text)).text.count("<successor id=") == text.count("<successor id=")
    driven = after.replace("-2", "-1").replace("sidewalk", "driving")
    with pytest.raises(InvalidMap, match="driven the other way"):
        Town(from_opendrive(text.replace(driven + '"-1"', driven + '"1"', 1)))


def test_ground_at_one_height_is_level_and_hills_flatten():
    """Red before: elevation 7 was refused, and so was every hill."""
    plain, hills = "<elevationProfile/>", '<elevationProfile><elevation s="0" a="{}" b="{}"/></elevationProfile>'
    text = drawn().replace("</planView><lanes>", "</planView><elevationProfile/><lanes>")
    assert text.count(plain) == 2
    flat = Town(from_opendrive(text)).text
    assert Town(from_opendrive(text.replace(plain, hills.format(7, 0)))).text == flat
    for hilly in (text.replace(plain, hills.format(7, 0), 1), text.replace(plain, hills.format(0, 0.1))):
        with pytest.raises(InvalidMap, match="--flatten"):
            from_opendrive(hilly)
        assert Town(from_opendrive(hilly, flatten=True)).text == flat
    banked = text.replace(plain, plain + '<lateralProfile><superelevation s="0" a="0.1" b="0" c="0" d="0"/></lateralProfile>')
    with pytest.raises(InvalidMap, match="--flatten"):
        from_opendrive(banked)
    assert Town(from_opendrive(banked, flatten=True)).text == flat


def road(
    number: int, length: float, lanes: str, before: int | None, after: int | None, x: float = 0.0, told: float = 0.0
) -> str:
    """Return a straight road between two others; told: [m] its length as the file says, if it differs."""
    ends = (("predecessor", before, "end"), ("successor", after, "start"))
    links = "".join(f'<{tag} elementType="road" elementId="{n}" contactPoint="{at}"/>' for tag, n, at in ends if n is not None)
    plan = f'<geometry s="0" x="{x!r}" y="0" hdg="0" length="{length!r}"><line/></geometry>'
    start = f'<road name="" id="{number}" junction="-1" length="{told or length!r}"><link>{links}</link>'
    return f"{start}<planView>{plan}</planView><lanes>{lanes}</lanes></road>"


def file(*roads: str) -> str:
    return f'<OpenDRIVE><header revMajor="1" revMinor="4"/>{"".join(roads)}</OpenDRIVE>'


def lanes(begin: float, before: int | None, after: int | None, number: int = -1) -> str:
    return section(begin, "", lane(number, width(0, 3.5), linked(before, after)))


def one_way(text: str, tmp_path: Path, count: int) -> None:
    """Require one chain of ways from the first lane to the last, in server and client."""
    made = Town(from_opendrive(text))
    way, passed = made.lanes.ways[0], 1
    while way.successors:
        way, passed = made.lanes.ways[way.successors[0]], passed + 1
    assert passed == count == len(made.lanes.ways)
    (tmp_path / "a.xodr").write_text(made.text)
    assert loaded([tmp_path / "a.xodr"])["a"][0] == count - 1


def test_sections_of_no_length_and_rounding_are_snapped(tmp_path):
    """Red before: "do not follow each other", "is not that of its pieces", "is 100.1 m long"."""
    sections = lanes(0, None, -1) + lanes(60, -1, -1) + lanes(99.9999995, -1, -1)
    second = lanes(0, -1, None)
    one_way(file(road(1, 100.0, sections, None, 2), road(2, 50.0, second, 1, None, 100.0)), tmp_path, 3)
    rounded = file(road(1, 100.0, lanes(0, None, -1), None, 2, told=100.2), road(2, 50.0, second, 1, None, 100.0))
    one_way(rounded, tmp_path, 2)
    with pytest.raises(InvalidMap, match="not that of its pieces"):
        from_opendrive(file(road(1, 100.0, lanes(0, None, None), None, None, told=101.0)))


def test_tiny_roads_and_roads_without_lanes_load(tmp_path):
    """Red before: "has no length, or a piece of none", "has no lanes besides the centre"."""
    tiny = road(2, 1e-5, lanes(0, -1, -1), 1, 3, 100.0)
    around = road(1, 100.0, lanes(0, None, -1), None, 2), road(3, 50.0, lanes(0, -1, None), 2, None, 100.00001)
    one_way(file(around[0], tiny, around[1]), tmp_path, 3)
    empty = road(4, 30.0, '<laneSection s="0"><center><lane id="0" type="none"/></center></laneSection>', None, None, 300.0)
    one_way(file(around[0], tiny, around[1], empty), tmp_path, 3)


def test_lane_without_a_width_is_not_driven_on(tmp_path):
    """Red before: "lane -2 is 0 to 0 m wide", and "no width from its beginning on" without the element."""
    for none in (width(0, 0.0), ""):
        first = section(0, "", lane(-1, width(0, 3.5), linked(None, -1)) + lane(-2, none))
        one_way(file(road(1, 100.0, first, None, 2), road(2, 50.0, lanes(0, -1, None), 1, None, 100.0)), tmp_path, 2)


def test_end_of_a_section_has_its_own_offset():
    """Red before: an offset that jumps where the next section begins left the lanes 3.5 m apart."""
    offsets = '<laneOffset s="0" a="0" b="0" c="0" d="0"/><laneOffset s="60" a="3.5" b="0" c="0" d="0"/>'
    wide = lane(-1, width(0, 3.5)) + lane(-2, width(0, 3.5), linked(-1, None))
    sections = section(0, "", lane(-1, width(0, 3.5), linked(None, -2))) + section(60, "", wide)
    made = Town(from_opendrive(file(road(1, 100.0, offsets + sections, None, None))))
    ways = made.lanes.ways
    assert np.hypot(*(ways[ways[0].successors[0]].points[0] - ways[0].points[-1])[:2]) < 1e-6


def test_piecewise_end_is_from_the_left():
    parts = ((0.0, 1.0, 0.0, 0.0, 0.0), (10.0, 5.0, 0.0, 0.0, 0.0))
    s = np.array([9.0, 10.0])
    assert piecewise(parts, s).tolist() == [1.0, 5.0] and piecewise(parts, s, 10.0).tolist() == [1.0, 1.0]


def test_a_folder_of_maps_serves_its_files_by_name(tmp_path):
    (tmp_path / "Town03.xodr").write_text(town("ring").text)
    catalogue = Catalogue(str(tmp_path))
    assert "Town03" in catalogue.names and catalogue.town("Town03").name == "Town03"
    assert catalogue.town("Town03_Opt").name == "Town03_Opt" and catalogue.town("grid").name == "grid"
    assert catalogue.town("Town03") is catalogue.town("Town03")
    with pytest.raises(UnknownMap, match="Town03"):
        catalogue.town("Town04")
    with pytest.raises(InvalidOption, match="not there"):
        Catalogue(str(tmp_path / "no"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidOption, match="no map"):
        Catalogue(str(tmp_path / "empty"))


@pytest.mark.slow
def test_clients_load_folder_maps_and_own_by_name(client, tmp_path):
    """Red before: "Unknown map 'Town03'", and a map that was sent had no name but OpenDriveMap."""
    (tmp_path / "Town03.xodr").write_text(town("ring").text)
    result = client(
        """
        result["listed"] = [name for name in client.get_available_maps() if "Town" in name]
        result["names"] = [client.load_world(name).get_map().name for name in ("Town03", "Town03_Opt", "grid")]
        text = client.get_world().get_map().to_opendrive().replace('name="grid"', 'name="Mine"', 1)
        result["names"].append(client.generate_opendrive_world(text).get_map().name)
        result["names"].append(client.load_world("Mine").get_map().name)
        """,
        maps=str(tmp_path),
    )
    names = [name.rsplit("/", 1)[-1] for name in result["names"]]
    assert names == ["Town03", "Town03_Opt", "grid", "OpenDriveMap", "Mine"]
    assert result["listed"] == ["/Game/Carla/Maps/Town03"]


READ = """
import carla, json, sys
import numpy as np
from robo_sims.carla import roads, routes
made = roads.read(carla.Map("made", sys.stdin.read()))
jumps = [
    float(np.hypot(*(made.lanes[after].points[0, :2] - one.points[-1, :2]))) for one in made.lanes for after in one.successors
]
chance, back = np.random.default_rng(0), 0.0
for _ in range(40):
    points = routes.draw_route(made, chance, "train", 100.0).points
    steps = np.diff(points[:, :2], axis=0)
    along = steps[:, 0] * np.cos(points[:-1, 3]) + steps[:, 1] * np.sin(points[:-1, 3])
    back = min(back, float(along.min()))
print(json.dumps([max(jumps), back]))
"""


@pytest.mark.slow
def test_routes_do_not_jump_back_between_sections():
    """Red before: the client's lane went on to the end of the road, and the next section began far behind it."""
    pytest.importorskip("carla", reason="no wheel here")
    text = Town(from_opendrive(drawn())).text
    command, path = [sys.executable, "-c", READ], os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    jump, back = json.loads(done.stdout)
    assert jump < 2.5 and back >= 0.0
