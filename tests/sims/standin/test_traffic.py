"""Cars that drive themselves, walkers, and lights: on the server's side alone, where many steps cost little."""

import re

import numpy as np
import pytest

from factories import rest_slow

pytest.importorskip("msgpack")

from carla_standin import layouts, population
from carla_standin.actors import VX, VY, YAW, X, Y
from carla_standin.approach import closest_approach, stopping_way
from carla_standin.collisions import overlap, rectangle
from carla_standin.errors import Refused, StandInError
from carla_standin.layouts import TrafficLightState
from carla_standin.maps.catalogue import town
from carla_standin.maps.lanes import CELL
from carla_standin.maps.opendrive_reader import from_opendrive
from carla_standin.maps.town import Town
from carla_standin.physics.parameters import VEHICLES
from carla_standin.population import Population
from carla_standin.traffic import following, lane_changes
from carla_standin.traffic.junctions import CLEAR, LONGEST_WAIT, Candidate, Junctions
from carla_standin.traffic.users import PATIENCE, Standing, users_of
from carla_standin.walkers import NEAR, Script
from carla_standin.world import World


class Nobody:
    """Streams that nobody hears, or that keep what is sent."""

    port, may_drop = 2001, False

    def __init__(self, heard: bool = False) -> None:
        self.heard, self.sent = heard, []

    def is_heard(self, stream: int) -> bool:
        return self.heard

    def send(self, stream: int, *parts: bytes) -> None:
        self.sent.append((stream, b"".join(parts)))


def world_of(name: str, cars: int = 0, walkers: int = 0, seed: int = 0, heard: bool = False) -> World:
    world = World(town(name), Nobody(heard))
    Population(cars, walkers, seed).spawn(world)
    return world


def spawn(world: World, type_id: str, pose, **attributes: str):
    return world.spawn([1, type_id, [[key, 4, value] for key, value in attributes.items()]], pose)


def run(world: World, seconds: float, watch=lambda: None) -> None:
    for _ in range(round(seconds * 20)):
        world.tick()
        watch()


def touching(world: World) -> list[tuple[int, int]]:
    vehicles = [actor for actor in world.bodies if actor.type_id.startswith("vehicle.")]
    found = []
    for number, first in enumerate(vehicles):
        for second in vehicles[:number]:
            gap = world.bodies.motion[first.row, :2] - world.bodies.motion[second.row, :2]
            if np.hypot(*gap) < 6 and overlap(rectangle(world.bodies, first), rectangle(world.bodies, second)):
                found.append((first.id, second.id))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["ring", "grid", "highway", "grid_train_6", "highway_test_1", "stops"], fast=2))
def test_traffic_flows_for_minutes_without_a_touch_or_a_jam(name):
    world = world_of(name, cars=24)
    assert len(world.cars) == 24
    stood, longest, travelled = np.zeros(24), np.zeros(24), np.zeros(24)

    def watch() -> None:
        nonlocal stood, longest, travelled
        stood = np.where(world.cars.speed < 0.1, stood + 0.05, 0.0)
        longest, travelled = np.maximum(longest, stood), travelled + 0.05 * world.cars.speed
        if world.clock.frame % 5 == 0:
            assert touching(world) == []

    run(world, 90, watch)
    assert longest.max() < 60 and travelled.min() > 90  # nobody waits for ever


@pytest.mark.slow
def test_nobody_crosses_a_red_light():
    world = world_of("grid", cars=30)
    of_way, before = world.lights.of_way, world.cars.way.copy()
    crossed = []

    def watch() -> None:
        nonlocal before
        for car in np.flatnonzero(world.cars.way != before):
            light = of_way[before[car]]
            if light >= 0 and world.cars.lanes.junction[world.cars.way[car]] != -1:
                crossed.append(world.lights.colours[light])
        before = world.cars.way.copy()

    run(world, 120, watch)
    assert len(crossed) > 20
    assert crossed.count(TrafficLightState.RED) == 0


def test_car_stops_behind_obstacle_and_client_car():
    world = world_of("ring")
    (x, y, z), rotation = world.town.spawn_points[0]
    ahead = [[x - 60, y, z], rotation]
    driven = spawn(world, "vehicle.audi.a2", ahead)
    spawn(world, "vehicle.tesla.model3", [[x, y, z], rotation], driver="traffic")
    run(world, 25)
    gap = abs(world.bodies.motion[driven.row, X] - world.bodies.motion[world.cars.actors[0].row, X]) - 2.4 - 1.85
    assert world.cars.speed[0] < 0.05 and 1.0 < gap < 4.0


@pytest.mark.slow
def test_faster_car_overtakes_on_two_lanes():
    world = world_of("ring_train_1")
    lanes = world.town.lanes
    start = next(number for number, way in enumerate(lanes.ways) if way.left >= 0 and way.junction == -1)
    x, y, heading = lanes.poses(np.array([start]), np.array([10.0]))[0]
    pose = [[x, y, 0.3], [0.0, float(np.degrees(heading)), 0.0]]
    spawn(world, "vehicle.tesla.model3", pose, driver="traffic")
    x, y, heading = lanes.poses(np.array([start]), np.array([30.0]))[0]
    spawn(world, "vehicle.audi.a2", [[x, y, 0.3], [0.0, float(np.degrees(heading)), 0.0]], driver="traffic")
    world.cars.eager[:] = 1.0, 0.3
    run(world, 40, lambda: touching(world) == [] or pytest.fail("they touch"))
    assert world.cars.speed[0] > 1.5 * world.cars.speed[1]


def test_who_merges_leaves_the_lane_that_ends():
    world = world_of("highway")
    lanes = world.town.lanes
    ramp = next(number for number, way in enumerate(lanes.ways) if way.road == 3)
    x, y, heading = lanes.poses(np.array([ramp]), np.array([20.0]))[0]
    spawn(world, "vehicle.tesla.model3", [[x, y, 0.3], [0.0, float(np.degrees(heading)), 0.0]], driver="traffic")
    run(world, 60)
    assert lanes.ways[world.cars.way[0]].road not in (3, 4) and world.cars.speed[0] > 15


def crossing_ways(junctions: Junctions) -> tuple[int, int]:
    """Return two ways that cross, the one with priority first."""
    return next(
        (first, second)
        for first, second in zip(*np.nonzero(junctions.crosses), strict=True)
        if junctions.rank[first] < junctions.rank[second]
    )


def test_crossing_traffic_goes_straight_first():
    junctions = world_of("grid").cars.junctions
    way, other = crossing_ways(junctions)
    both = [Candidate(7, other, 1.0), Candidate(4, way, 9.0)]
    nobody = lambda: (np.zeros((0, 2)), np.zeros((0, 2)))  # noqa: E731
    assert junctions.admitted(both, [], nobody).tolist() == [4]
    assert junctions.admitted(both, [(way, 0.0)], nobody).tolist() == [4]  # who follows may
    assert junctions.admitted(both[:1], [(way, 0.0)], nobody).tolist() == []
    middle = junctions.lanes.ways[way].points[3:4, :2]
    assert junctions.admitted(both[1:], [], lambda: (middle, 0.0 * middle)).tolist() == []  # a client's car is there


def test_junction_admits_long_waiting_car_first():
    junctions = world_of("grid").cars.junctions
    way, other = crossing_ways(junctions)
    nobody = lambda: (np.zeros((0, 2)), np.zeros((0, 2)))  # noqa: E731
    for waited, first in ((LONGEST_WAIT - 1.0, 4), (LONGEST_WAIT, 7)):
        both = [Candidate(7, other, 1.0, waited), Candidate(4, way, 9.0)]
        assert junctions.admitted(both, [], nobody).tolist() == [first]


def test_junction_keeps_a_bus_out_of_bends_that_cars_share():
    junctions = world_of("grid").cars.junctions
    nobody, bus, car = lambda: (np.zeros((0, 2)), np.zeros((0, 2))), (5.1, 1.2), (2.4, 1.0)
    near = (junctions.gaps > CLEAR) & (junctions.gaps < CLEAR + 1.5) & (junctions.curvature > 0.05)
    way, other = (int(number[0]) for number in np.nonzero(near & near.T))
    for body, admitted in ((car, 2), (bus, 1)):
        both = [Candidate(n, each, 1.0, 0.0, junctions.extra(each, *body)) for n, each in enumerate((way, other))]
        assert len(junctions.admitted(both, [], nobody)) == admitted
    assert junctions.extra(way, *car) == 0.0 and junctions.extra(way, *bus) > 0.5


def test_lane_change_of_a_bus_needs_the_room_of_a_bus():
    there, speed = np.array([9.0, -7.5]), np.array([5.0, 0.5])
    assert lane_changes.is_free(0.0, 5.0, there, speed)
    assert not lane_changes.is_free(0.0, 5.0, there, speed, np.array([10.2, 7.6]))


def locked(name: str, cars: int, seed: int, seconds: float) -> float:
    """Return the longest time [s] that a car of a full town stands."""
    world = world_of(name, cars, seed=seed)
    stood, longest = np.zeros(len(world.cars)), 0.0
    for _ in range(round(seconds * 20)):
        world.tick()
        stood = np.where(world.cars.speed < 0.1, stood + 0.05, 0.0)
        longest = max(longest, float(stood.max()))
    return longest


@pytest.mark.slow
def test_full_town_does_not_lock_up():
    assert locked("grid", 45, 11, 150) < 120  # red: a car that was let in past one that waits held everybody, for ever


@pytest.mark.slow
@pytest.mark.parametrize(("cars", "seed"), [(45, 11), (45, 3), (60, 2), (40, 2), (30, 1)])
def test_full_town_does_not_lock_up_in_six_minutes(cars, seed):
    assert locked("grid", cars, seed, 360) < 120


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("grid", 3), ("grid", 4), ("grid_test_3", 1)])
def test_buses_and_trucks_touch_nobody_in_a_town(name, seed, monkeypatch):
    monkeypatch.setattr(population, "MODELS", [vehicle.name for vehicle in VEHICLES if vehicle.kind in ("car", "truck", "bus")])
    world = world_of(name, 30, seed=seed)

    def watch() -> None:
        if world.clock.frame % 5 == 0:
            assert touching(world) == []

    run(world, 180, watch)


def test_the_model_of_drivers_keeps_its_equilibrium():
    # Equation 3 of the paper vanishes at the gap (s0 + v T) / sqrt(1 - (v / v0)^4).
    speed, wanted = np.array([10.0]), np.array([15.0])
    gap = (following.DRIVER.gap + 10.0 * following.DRIVER.headway) / np.sqrt(1 - (10 / 15) ** 4)
    total = following.free_road(speed, wanted) + following.interaction(speed, gap, speed)
    assert total == pytest.approx([0.0], abs=1e-12)


def test_a_car_of_the_traffic_begins_on_a_lane_or_not_at_all():
    world = world_of("ring")
    with pytest.raises(Refused, match="must begin on a lane"):
        spawn(world, "vehicle.audi.a2", [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], driver="traffic")
    assert len(world.cars) == 0 and world.tick()


@pytest.mark.slow
def test_walkers_cross_and_come_back_and_wait_for_cars():
    world = world_of("ring", cars=12, walkers=8)
    start = world.bodies.motion[world.walkers.rows][:, [X, Y]].copy()
    farthest, moved = np.zeros(8), np.zeros(8)

    def watch() -> None:
        nonlocal farthest, moved
        motion = world.bodies.motion[world.walkers.rows]
        farthest = np.maximum(farthest, np.hypot(*(motion[:, [X, Y]] - start).T))
        moved += 0.05 * np.hypot(motion[:, VX], motion[:, VY])

    run(world, 90, watch)
    assert ((farthest > 7.5) & (farthest < 14.5)).all() and (moved > 2 * farthest - 1).all()


def test_the_lights_of_a_junction_take_turns():
    world = world_of("grid")
    cycle = next(cycle for cycle in world.lights.cycles if len(cycle.groups) == 2)
    seen = []

    def watch() -> None:
        shown = tuple(int(world.lights.colours[group[0]]) for group in cycle.groups)
        if not seen or seen[-1][0] != shown:
            seen.append((shown, world.clock.elapsed))

    run(world, 31, watch)
    red, yellow, green = int(TrafficLightState.RED), int(TrafficLightState.YELLOW), int(TrafficLightState.GREEN)
    order = [(green, red), (yellow, red), (red, red), (red, green), (red, yellow), (red, red), (green, red)]
    assert [colours for colours, _ in seen] == order
    assert np.diff([when for _, when in seen][1:]) == pytest.approx([3, 2, 10, 3, 2])


def bytes_of(seed: int) -> list[bytes]:
    """Returns every message of an episode in which everything takes part, without the time on the wall."""
    world = world_of("grid", cars=10, walkers=4, seed=seed, heard=True)
    pose = next(
        pose for pose in world.town.spawn_points if world.collisions.is_free(world.bodies, world.bodies.actors[-1], pose)
    )
    vehicle = spawn(world, "vehicle.mini.cooper_s", pose, dynamics="dynamic")
    for name in ("sensor.camera.rgb", "sensor.camera.depth", "sensor.other.imu", "sensor.other.gnss", "sensor.lidar.ray_cast"):
        attributes = {"image_size_x": "32", "image_size_y": "24"} if "camera" in name else {}
        attributes |= {"noise_accel_stddev_x": "0.1"} if "imu" in name else {}
        given = [[key, 4, value] for key, value in attributes.items()]
        world.spawn([1, name, given], [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]], vehicle.id)
    for step in range(150):
        world.group_of(vehicle).control(vehicle, world.bodies, [0.5, np.sin(step / 20) * 0.2, 0, 0, 0, 0, 0])
        world.tick()
    return [message[:56] + message[64:] if stream == 1 else message for stream, message in world.streams.sent]


@pytest.mark.slow
def test_same_calls_repeat_bytes_and_seed_changes_them():
    first, second, other = bytes_of(5), bytes_of(5), bytes_of(6)
    assert len(first) == 150 * 6 and first == second
    assert first != other


@pytest.mark.slow
def test_a_reloaded_world_goes_the_same_way_again():
    world = World(town("grid"), Nobody())
    courses = []
    for _ in range(2):
        Population(15, 3, 2).spawn(world)
        run(world, 20)
        courses.append(world.bodies.motion.copy())
        world.begin(world.town)
    assert np.array_equal(*courses)


def test_only_another_map_is_told_as_one():
    # at which a client asks for lamps, in a thread that ends the process where the server has ended meanwhile
    world = World(town("grid"), Nobody(heard=True))

    def told() -> list[int]:
        world.streams.sent.clear()
        world.tick()
        world.tick()
        states = [
            layouts.SNAPSHOT_HEADER.unpack_from(message, layouts.SENSOR_HEADER.size)[-1] for _, message in world.streams.sent
        ]
        return [state & layouts.MAP_CHANGED for state in states]

    assert told() == [1, 0]
    world.begin(world.town)
    assert told() == [0, 0]
    world.begin(town("ring"))
    world.begin(world.town)
    assert told() == [1, 0], "nobody has heard of it in between"


@pytest.mark.slow
def test_respawned_traffic_repeats_its_paths():
    world = World(town("grid"), Nobody())
    courses = []
    for _ in range(2):
        Population(15, 3, 2).spawn(world)
        run(world, 20)
        courses.append(world.bodies.motion.copy())
        run(world, 0.35)  # not a round number of turns
        for actor in [*world.cars.actors, *world.walkers.actors]:
            world.destroy(actor)
        world.lights.reset()
    assert np.array_equal(*courses)


def courses_of(prepares: bool, looks: list[int]) -> list[np.ndarray]:
    """Returns all motion of an episode in which a client's car is put before others between steps, and cars come and go."""
    world = world_of("grid", cars=12, seed=4)
    look = world.cars.detector.look
    world.cars.detector.look = lambda *given: looks.append(world.clock.frame) or look(*given)
    pose = [[-300.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    vehicle = spawn(world, "vehicle.mini.cooper_s", pose)
    courses = []
    for step in range(240):
        world.tick()
        if prepares:
            world.prepare()
        if step % 40 == 10:
            x, y, *_, yaw, _ = world.bodies.motion[world.cars.actors[step % 12].row, :6]
            ahead = np.array([np.cos(np.radians(yaw)), np.sin(np.radians(yaw))]) * 9.0
            world.place(vehicle, [[x + ahead[0], y + ahead[1], 0.0], [0.0, yaw, 0.0]])
        if step % 100 == 50:
            world.destroy(world.cars.actors[-1])
        courses.append(world.bodies.motion.copy())
    return courses


def test_prefetched_step_changes_no_result():
    late, early = [], []
    for one, other in zip(courses_of(False, late), courses_of(True, early), strict=True):
        assert np.array_equal(one, other)
    # once a step, and again where somebody was put elsewhere or went
    assert len(late) == 240 and len(early) == 240 + 6 + 2


def test_only_what_is_solid_is_hit_and_a_building_stops_a_car():
    world = world_of("grid")
    x, y, _, _, width, _ = world.town.buildings[0]
    vehicle = spawn(world, "vehicle.tesla.model3", [[x, y + width + 8.0, 0.0], [0.0, -90.0, 0.0]])
    group, hits = world.group_of(vehicle), []
    group.control(vehicle, world.bodies, [1.0, 0, 0, 0, 0, 0, 0])
    run(world, 4, lambda: hits.extend(world.hits))
    assert hits[0].other.type_id == "static.building" and hits[0].impulse[1] > 1850
    assert world.bodies.motion[vehicle.row, Y] == pytest.approx(y + width + 2.4, abs=0.02)
    assert abs(world.bodies.motion[vehicle.row, VY]) < 0.3 and world.bodies.motion[vehicle.row, YAW] == -90.0
    assert issubclass(Refused, StandInError)


def user_at(world, way, before: float, speed: float):
    """Spawn a client's car `before` [m] of the end of a way, at a speed [m/s]."""
    lanes = world.town.lanes
    x, y, heading = lanes.poses(np.array([way]), lanes.length[[way]] - before)[0]
    made = spawn(world, "vehicle.tesla.model3", [[x, y, 0.0], [0.0, float(np.degrees(heading)), 0.0]])
    world.bodies.motion[made.row, [VX, VY]] = speed * np.cos(heading), speed * np.sin(heading)
    return made


def test_clients_car_has_a_rank_at_junctions():
    """Red before: a client's car was seen 2.1 s ahead, and a turn to the left takes four."""
    world = world_of("grid")
    cars, lanes = world.cars, world.town.lanes
    junctions, everywhere = cars.junctions, np.ones(len(lanes.ways), bool)
    straight, left = next(
        (first, second)
        for first, second in zip(*np.nonzero(junctions.crosses), strict=True)
        if junctions.rank[first] == 0 and junctions.rank[second] == 2
    )
    (before,) = lanes.predecessors[straight]
    nowhere = lambda: (np.zeros((0, 2)), np.zeros((0, 2)))  # noqa: E731

    def may_turn(speed, distance=35.0, is_open=everywhere, waited=0.0, stood=0.0):
        made, standing = user_at(world, before, distance, speed), Standing()
        users_of(lanes, world.bodies.motion[[made.row]], is_open, standing, 0.0)
        theirs = users_of(lanes, world.bodies.motion[[made.row]], is_open, standing, stood)
        world.destroy(made)
        turning = Candidate(3, int(left), 1.0, waited)
        return junctions.admitted([turning], [], nowhere, theirs.coming).tolist() == [3], theirs

    assert not may_turn(10.0)[0]  # 3.5 s before the line
    assert {one.way for one in may_turn(10.0)[1].coming} == set(lanes.ways[before].successors)
    assert may_turn(5.0)[0]  # seven seconds before it
    assert not may_turn(0.3, 2.0)[0]  # it starts when its light is green, as they do
    assert may_turn(0.3, 2.0, stood=PATIENCE)[0]  # it waits itself, or is parked
    assert may_turn(0.3, 15.0)[0]  # it stands for another reason
    assert may_turn(10.0, is_open=np.arange(len(lanes.ways)) != before)[0]  # it has a red light
    assert not may_turn(10.0, waited=2 * LONGEST_WAIT)[0]  # it does not know who has waited for long
    first = Candidate(4, int(straight), 1.0)
    assert junctions.admitted([first], [], nowhere, may_turn(10.0)[1].coming).tolist() == [4]  # nearer, and not later
    made = user_at(world, straight, 5.0, 8.0)
    assert straight in users_of(lanes, world.bodies.motion[[made.row]], everywhere).inside


def test_traffic_waits_for_the_body_of_a_clients_car():
    """Red before: its middle alone counted, so that a car stopped at its nose, and neither moved again."""
    world = world_of("grid", cars=1)
    cars, lanes = world.cars, world.town.lanes
    way = int(np.flatnonzero(lanes.crossing)[0])
    points = cars.junctions.paths[way]
    x, y, heading = points[len(points) // 2]
    aside = 4.5  # its middle is clear of the way, its nose is not
    pose = [[x - aside * np.sin(heading), y + aside * np.cos(heading), 0.0], [0.0, float(np.degrees(heading)) - 90.0, 0.0]]
    made = spawn(world, "vehicle.tesla.model3", pose)
    start, step = cars._sweeps(world.bodies.motion[cars.users])
    assert np.linalg.norm(step[0]) == pytest.approx(2 * made.box.extent[0]) and cars.junctions._is_reached(way, start, step)
    assert not cars.junctions._is_reached(way, world.bodies.motion[[made.row], :2], np.zeros((1, 2)))


def test_who_waited_to_turn_goes_at_yellow():
    """Red before: behind a queue that came towards it, a car that turns to the left stayed for every green."""
    world = world_of("grid", cars=2)
    cars = world.cars
    lit = np.flatnonzero(world.lights.of_way >= 0)[:2]
    cars.way[:], cars.next[:], cars.after[:], cars.stretch = lit, -1, -1, None
    for number in range(2):
        cars._plan(number)
    world.lights.colours[:] = TrafficLightState.YELLOW
    cars.waited[:] = 0.0, LONGEST_WAIT
    assert cars._light_is_open(cars._stretch(), np.zeros(2, bool)).tolist() == [False, True]
    world.lights.colours[:] = TrafficLightState.RED
    assert not cars._light_is_open(cars._stretch(), np.zeros(2, bool)).any()


def test_red_light_behind_a_short_lane_is_seen_before_it():
    """Red before: a car came onto a lane of a few metres too fast to stop at its end (CARLA's Town04)."""
    world = world_of("grid", cars=1)
    cars, lanes = world.cars, world.town.lanes
    lit = int(np.flatnonzero(world.lights.of_way >= 0)[0])
    (before,) = lanes.predecessors[lit][:1]
    cars.way[:], cars.next[:], cars.after[:], cars.stretch = before, lit, lanes.ways[lit].successors[0], None
    cars.s[:], cars.speed[:] = lanes.length[before] - 5.0, 5.0

    def braking(length, colour):
        world.lights.colours[:], cars.stretch = colour, None
        lanes.length[lit] = length
        return float(cars._acceleration(lanes.length[cars.way] - cars.s, cars._stretch())[0])

    whole = float(lanes.length[lit])
    try:
        assert braking(12.0, TrafficLightState.RED) < braking(12.0, TrafficLightState.GREEN) - 0.5
        assert braking(whole, TrafficLightState.RED) == braking(whole, TrafficLightState.GREEN)
    finally:
        lanes.length[lit] = whole


def test_points_by_cells_find_the_nearest_of_all():
    lanes = town("grid").lanes
    chance = np.random.default_rng(0)
    low, high = lanes.points[:, :2].min(0) - 30, lanes.points[:, :2].max(0) + 30
    for x, y, heading in zip(*chance.uniform([[low[0]], [low[1]], [-3]], [[high[0]], [high[1]], [3]], (3, 40)), strict=True):
        squares = (lanes.points[:, 0] - x) ** 2 + (lanes.points[:, 1] - y) ** 2
        fits = np.where(np.cos(lanes.points[:, 2] - heading) > 0.5, squares, np.inf)
        assert lanes.nearest(x, y, heading)[0] == lanes.way_of_point[fits.argmin()]
        assert lanes.nearest(x, y)[0] == lanes.way_of_point[squares.argmin()]
        near = np.flatnonzero(squares < CELL * CELL)
        assert set(near) <= set(lanes.around(x, y))


@pytest.mark.slow
def test_closest_approach_is_that_of_the_whole_motion():
    chance = np.random.default_rng(0)
    start, step, other, way = chance.uniform(-10, 10, (4, 40, 2))
    step[:4], way[2:6] = 0.0, 0.0  # points, and points with points
    gaps, shares, places = closest_approach(start, step, other, way)
    steps = np.linspace(0, 1, 201)
    for number in range(40):
        for theirs in range(0, 40, 7):
            own = start[number] + steps[:, None] * step[number]
            seen = other[theirs] + steps[:, None] * way[theirs]
            sampled = np.linalg.norm(own[:, None] - seen[None], axis=-1).min()
            assert sampled - 0.15 < gaps[number, theirs] <= sampled + 1e-9
    met = start[:, None] + shares[..., None] * step[:, None] - other - places[..., None] * way
    assert np.allclose(np.linalg.norm(met, axis=-1), gaps, atol=1e-9), "the distance is that of the places given"
    assert ((shares >= 0) & (shares <= 1) & (places >= 0) & (places <= 1)).all()


def test_closest_approach_of_parallel_and_crossing_lines():
    ahead, aside = np.array([[10.0, 0.0]]), np.array([[0.0, 10.0]])
    gap, share, place = closest_approach(np.zeros((1, 2)), ahead, np.array([[4.0, -5.0]]), aside)
    assert (gap, share, place) == (0.0, pytest.approx(0.4), pytest.approx(0.5))
    assert closest_approach(np.zeros((1, 2)), ahead, np.array([[2.0, 3.0]]), ahead)[0] == pytest.approx(3.0)
    assert closest_approach(np.zeros((1, 2)), ahead, np.array([[13.0, 4.0]]), ahead)[0] == pytest.approx(5.0)


def test_stopping_way_grows_with_the_square_of_speed():
    assert stopping_way(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[6.0, 8.0], [0.0, 0.0]]  # 5 m and 5^2 / 5 m


@pytest.mark.parametrize(("away", "pace"), [(5.0, 8.0), (4.5, 14.0), (12.0, 14.0), (30.0, 14.0)])
def test_walkers_see_every_car_before_stepping_out(away, pace):
    """Red before for the first three: the look was taken at 0, 1.25 and 2.5 s alone."""
    script = Script(np.random.default_rng(0), 0.0, 1.4, 10.0)
    place = np.array([0.0, 0.0])
    coming = np.array([[5.0, -away, 0.0, pace]])
    assert script.velocity(place, coming, 0.05) == (0.0, 0.0)
    gone = np.array([[5.0, away, 0.0, pace]])
    assert script.velocity(place, gone, 0.05) != (0.0, 0.0) or away < NEAR
    far = np.array([[5.0, -60.0, 0.0, 10.0]])
    assert Script(np.random.default_rng(0), 0.0, 1.4, 10.0).velocity(place, far, 0.05) != (0.0, 0.0)


@pytest.mark.slow
def test_way_of_several_sections_is_one_way():
    """Red before: right of way was tested for the first section alone."""
    text = town("grid").text
    whole = Town(from_opendrive(text))
    old, lanes = whole.junctions, whole.lanes
    before = int(old.crosses.sum(1).argmax())
    number, length = lanes.ways[before].road, whole.road_map.by_id[lanes.ways[before].road].length
    begin = text.index("<laneSection", text.index(f'id="{number}" junction="'))
    end = text.index("</laneSection>", begin) + len("</laneSection>")
    first, second = (re.sub(rf'<{tag} id="-?1"', f'<{tag} id="-1"', text[begin:end]) for tag in ("successor", "predecessor"))
    chained = Town(from_opendrive(text[:begin] + first + second.replace('s="0.0"', f's="{length / 2!r}"', 1) + text[end:]))
    new = chained.junctions
    parts = [n for n, way in enumerate(chained.lanes.ways) if chained.road_map.by_id[way.road].number == number]
    head, tail = parts if new.head(parts[0]) == parts[0] else parts[::-1]
    assert new.last(head) == tail and new.gaps[head, tail] == np.inf and new.rank[head] == old.rank[before]
    crossed = [other for other in np.flatnonzero(old.crosses[before]) if lanes.ways[other].road != number]
    there = [chained.lanes.index[lanes.ways[other].road, lanes.ways[other].lane] for other in crossed]
    assert there and new.crosses[head, there].all()
    assert new.crosses[head].sum() == old.crosses[before].sum()
