"""Walkers that the client leads by the navigation mesh of the map: `controller.ai.walker`, as generate_traffic.py has them."""

import hashlib
import struct

import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin import layouts
from carla_standin.layouts import Area
from carla_standin.maps.catalogue import town
from carla_standin.maps.navigation import connected, mesh
from carla_standin.maps.pavements import Polygon, polygons

CROWD = """
def found(count):
    return [world.get_random_location_from_navigation() for _ in range(count)]
def crowd(count, speed=1.4):
    names = library.filter("walker.pedestrian.*")
    made = [carla.command.SpawnActor(names[i], carla.Transform(place)) for i, place in enumerate(found(count))]
    walkers = [answer.actor_id for answer in client.apply_batch_sync(made, True) if not answer.error]
    made = [carla.command.SpawnActor(library.find("controller.ai.walker"), carla.Transform(), one) for one in walkers]
    controllers = [answer.actor_id for answer in client.apply_batch_sync(made, True) if not answer.error]
    world.tick()
    walkers, controllers = list(world.get_actors(walkers)), list(world.get_actors(controllers))
    for controller in controllers:
        controller.start()
        controller.go_to_location(found(1)[0])
        controller.set_max_speed(speed)
    return walkers, controllers
def flat(place):
    return [place.x, place.y]
def where(place):  # what the client's own map says: on a pavement, or at which part of which road
    pavement = world.get_map().get_waypoint(place, True, carla.LaneType.Sidewalk)
    lane = world.get_map().get_waypoint(place, False, carla.LaneType.Driving)
    gap = place - pavement.transform.location
    return [abs(gap.dot(pavement.transform.get_right_vector())), lane is not None, place.x, place.y]
def walk(walkers, count):
    ways = []
    for _ in range(count):
        world.tick()
        ways.append([actor.get_location() for actor in walkers])
    return ways
def walked(ways):
    return [sum(a.distance(b) for a, b in zip(way, way[1:])) for way in zip(*ways)]
world.set_pedestrians_seed(3)
"""
STREETS = (np.array([0.0, 90.0, 200.0, 300.0]), -np.array([0.0, 100.0, 190.0]))
"""x and y of the streets of the grid, each of them crossed half-way."""


@pytest.mark.slow
def test_random_places_are_on_pavements(program):
    result = program(CROWD + "result['found'] = [where(place) for place in found(200)]", map="grid")
    distance, is_lane = np.array(result["found"])[:, :2].T
    assert distance.max() <= 0.71 and not is_lane.any()  # pavements are 2 m wide, and walkers keep 0.3 m from their edges
    places = np.array(result["found"])[:, 2:]
    assert np.ptp(places, axis=0).min() > 150 and len(np.unique(places.round(1), axis=0)) > 190


@pytest.mark.slow
def test_walker_crosses_only_at_crossings(program):
    result = program(
        CROWD
        + """
walkers, controllers = crowd(8, 1.8)
ways = walk(walkers, 600)
result["walked"] = walked(ways)
result["where"] = [where(place) for places in ways[::10] for place in places]
houses, still = world.get_level_bbs(carla.CityObjectLabel.Buildings), carla.Transform()
result["houses"] = len(houses)
result["housed"] = sum(house.contains(place, still) for places in ways[::10] for place in places for house in houses)
""",
        map="grid",
    )
    assert min(result["walked"]) > 20 and result["houses"] > 20 and result["housed"] == 0
    on_road = np.array([row[2:] for row in result["where"] if row[1]])
    assert len(on_road) > 10
    for x, y in on_road:
        assert _is_half_way(x, y), (x, y)


def _is_half_way(x: float, y: float) -> bool:
    columns, rows = STREETS
    halves = [(columns[:-1] + columns[1:]) / 2, (rows[:-1] + rows[1:]) / 2]
    return min(np.abs(halves[0] - x).min(), np.abs(halves[1] - y).min()) < 1.6


@pytest.mark.slow
def test_go_to_location_arrives_and_max_speed_holds(program):
    result = program(
        CROWD
        + """
walker = spawn("walker.pedestrian.0001", at(0, 44.5, 1.0))
controller = spawn("controller.ai.walker", carla.Transform(), walker)
world.tick()
controller.start()
controller.go_to_location(carla.Location(20, 34.8, 0))
controller.set_max_speed(2.0)
speeds, gaps = [], []
for _ in range(380):
    world.tick()
    speeds.append(walker.get_velocity().length())
    gaps.append(walker.get_location().distance_2d(carla.Location(20, 34.8, 0)))
result["top"], result["gap"], result["height"] = max(speeds), min(gaps), place(walker)[2]
controller.stop()
ticks(2)
first = place(walker)
ticks(20)
result["rest"] = first == place(walker), speed(walker)
"""
    )
    # To the other side of the straight, and along it.
    assert result["gap"] < 1.2 and result["top"] == pytest.approx(2.0, abs=0.05)
    assert result["height"] == pytest.approx(0.9) and result["rest"] == [True, [0, 0, 0]]


@pytest.mark.slow
def test_a_crowd_walks_among_traffic_for_a_minute_and_is_gone(program):
    result = program(
        CROWD
        + """
cars = [car(spawn_points[i], driver="traffic") for i in range(0, 24, 4)]
walkers, controllers = crowd(10)
ways = walk(walkers, 1200)
result["walked"] = walked(ways)
for controller in controllers:
    controller.stop()
gone = [carla.command.DestroyActor(actor.id) for actor in [*controllers, *walkers]]
result["errors"] = [answer.error for answer in client.apply_batch_sync(gone, True)]
ticks(5)
result["left"] = [actor.type_id for actor in world.get_actors() if actor.type_id.startswith(("walker", "controller"))]
"""
    )
    assert len(result["walked"]) == 10 and np.median(result["walked"]) > 40
    assert result["errors"] == [""] * 20 and result["left"] == []


@pytest.mark.slow
def test_the_same_calls_lead_walkers_the_same_way_to_the_bit(program):
    runs = [
        program(
            CROWD
            + """
world = client.reload_world(False)  # before, the server ticked by itself, and its lights with it
walkers, controllers = crowd(6)
result["ways"] = [flat(place) for places in walk(walkers, 300) for place in places]
""",
            map="grid",
        )["ways"]
        for _ in range(2)  # processes: one that goes on with another episode does not look at lights there
    ]
    assert runs[0] == runs[1] and len(np.unique(runs[0], axis=0)) > 1000


@pytest.mark.slow
def test_client_map_has_walkers_only_with_pavements(program):
    result = program(
        CROWD
        + """
text = world.get_map().to_opendrive()
def there():
    place = world.get_random_location_from_navigation()
    return None if place is None else where(place)
world = client.load_world("highway", False)
result["highway"] = there()
world = client.generate_opendrive_world(text, carla.OpendriveGenerationParameters(), False)
result["own"] = there()
""",
        map="grid",
    )
    assert result["highway"] is None
    assert result["own"][0] <= 0.71 and not result["own"][1]


@pytest.mark.slow
def test_get_required_files_tells_the_mesh_by_its_content(program):
    result = program(
        """
result["files"] = client.get_required_files("Nav", False), client.get_required_files("", False)
try:
    client.request_file("a")
except RuntimeError as error:
    result["error"] = str(error)
""",
        map="grid",
    )
    digest = hashlib.sha256(town("grid").navigation).hexdigest()[:16]
    assert result["files"] == [[f"Carla/Maps/Nav/grid-{digest}.bin"], []]
    assert "no such file" in result["error"] and "grid-" in result["error"]


@pytest.mark.slow
def test_walker_far_from_pavement_gets_no_controller(program):
    result = program(
        CROWD
        + """
def led(x, y):
    walker = spawn("walker.pedestrian.0001", at(x, y, 1.0))
    try:
        controller = spawn("controller.ai.walker", carla.Transform(), walker)
    except RuntimeError as error:
        return str(error)
    world.tick()
    controller.start()
    ticks(20)
    return place(walker)
result["far"], result["near"] = led(0, 0), led(0, 54)
world = client.load_world("highway", False)
result["unmapped"] = led(0, 54)
"""
    )
    assert "too far from a pavement" in result["far"] and "get_random_location_from_navigation" in result["far"]
    assert result["near"][1] < 45.3 and result["unmapped"][:2] == [0, 54]


@pytest.mark.slow
def test_a_server_without_navigation_lets_clients_make_no_files(program):
    result = program(
        CROWD + 'result["files"], result["found"] = client.get_required_files("Nav", False), found(1)', navigation=False
    )
    assert result["files"] == [] and result["found"] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring", "ring_train_1", "grid", "grid_train_1", "grid_test_2"])
def test_every_pavement_and_crossing_is_in_one_part(name):
    there = town(name)
    wanted = polygons(there.road_map, there.ground, there.buildings)
    count = struct.unpack_from("<i", there.navigation, 48 + 24)[0]
    assert count == len(wanted) and len(there.pavements) == count
    lanes = sum(lane.kind == "sidewalk" for road in there.road_map.roads for lane in road.lanes)
    assert {polygon.area for polygon in wanted} >= {Area.SIDEWALK, Area.CROSSWALK} and count > lanes


def test_no_pavement_leads_through_a_building():
    ring = town("ring")
    house = np.array([[0.0, 44.5, 30.0, 4.0, 3.0, 8.0]])
    free = polygons(ring.road_map, ring.ground, house)
    gone = set(polygons(ring.road_map, ring.ground, np.zeros((0, 6)))) - set(free)
    places = np.array([polygon.corners for polygon in gone])
    assert 2 <= len(gone) <= 4 and (np.abs(places.mean(1) - [0.0, -44.5]) < [10.0, 5.0]).all()


@pytest.mark.slow
def test_more_pavements_than_a_tile_holds_are_no_mesh():
    row = [Polygon(((i, 0), (i + 1, 0), (i + 1, 1), (i, 1)), Area.SIDEWALK) for i in range(0x4000)]
    assert connected(row) == row and mesh(row) == b"" and len(mesh(row[1:])) > 1_000_000


def test_no_way_leads_over_slivers_or_edges_of_more_than_two():
    first = Polygon(((0, 0), (2, 0), (2, 1), (0, 1)), Area.SIDEWALK)
    sliver = Polygon(((2, 0), (2.004, 0), (2.004, 1), (2, 1)), Area.SIDEWALK)
    second = Polygon(((2.004, 0), (4, 0), (4, 1), (2.004, 1)), Area.SIDEWALK)
    assert connected([first, sliver, second]) == [first, second]
    over = Polygon(((2.004, 0), (5, 0), (5, 1), (2.004, 1)), Area.SIDEWALK)
    assert connected([first, second, over]) == [first]


def test_the_bytes_of_two_squares_that_touch():
    first = Polygon(((0, 0), (2, 0), (2, 1), (0, 1)), Area.SIDEWALK)
    second = Polygon(((2, 0), (4, 0), (4, 1), (2, 1)), Area.CROSSWALK)
    alone = Polygon(((9, 0), (10, 0), (10, 1), (9, 1)), Area.CROSSWALK)
    made = mesh(connected([alone, first, second]))
    head = b"TESM" + struct.pack("<ii5f2i", 1, 1, -1, -5, -2, 6, 3, 1, 2)
    tile = b"VAND" + struct.pack("<i3iI9i", 7, 0, 0, 0, 0, 2, 6, 8, 2, 0, 4, 0, 0, 2)
    tile += struct.pack("<3f6ff", 1.8, 0.3, 0.5, -1, -5, -2, 5, 5, 1, 100)
    tile += struct.pack("<18f", 0, 0, 0, 2, 0, 0, 2, 0, -1, 0, 0, -1, 4, 0, 0, 4, 0, -1)
    tile += struct.pack("<I6H6HHBB", 0xFFFFFFFF, 0, 1, 2, 3, 0, 0, 0, 2, 0, 0, 0, 0, 2, 4, 1)
    tile += struct.pack("<I6H6HHBB", 0xFFFFFFFF, 1, 4, 5, 2, 0, 0, 0, 0, 0, 1, 0, 0, 4, 4, 2)
    tile += bytes(8 * 12)
    tile += struct.pack("<IIBBH", 0, 0, 0, 2, 0) + struct.pack("<IIBBH", 0, 2, 0, 2, 0)
    tile += bytes([0, 1, 2, 5, 0, 2, 3, 20]) * 2
    assert made == head + struct.pack("<Ii", 2, len(tile)) + tile
    assert mesh([]) == b"" and layouts.NAV_TILE_LOW == 72
