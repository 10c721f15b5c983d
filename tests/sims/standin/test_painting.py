"""What colour cameras show of vehicles and walkers, in the server's process."""

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin.layouts import IMAGE_HEADER, SENSOR_HEADER, Tag
from carla_standin.maps.catalogue import town
from carla_standin.maps.ground import stop_line
from carla_standin.population import Population
from carla_standin.sensors.paint import BRAKE, LEFT, RIGHT
from carla_standin.world import World

CAR = "vehicle.tesla.model3"
SIZE = 480, 300


class Kept:
    """Streams of which the last message is kept."""

    port, may_drop = 2001, False

    def __init__(self) -> None:
        self.sent: dict[int, bytes] = {}

    def is_heard(self, stream: int) -> bool:
        return True

    def send(self, stream: int, *parts: bytes) -> None:
        self.sent[stream] = b"".join(bytes(part) for part in parts)


def spawn(world, name, pose, **attributes):
    return world.spawn([1, name, [[key, 4, str(value)] for key, value in attributes.items()]], pose)


def pictures(world):
    """A colour picture and labels, from 1.4 m above the road at x = 0, y = 41.75, along x."""
    found = []
    for kind in ("rgb", "semantic_segmentation"):
        camera = spawn(world, f"sensor.camera.{kind}", [[0, 41.75, 1.4], [0, 0, 0]], image_size_x=SIZE[0], image_size_y=SIZE[1])
        world.tick()
        message = world.streams.sent[camera.stream][SENSOR_HEADER.size + IMAGE_HEADER.size :]
        found.append(np.frombuffer(message, np.uint8).reshape(SIZE[1], SIZE[0], 4)[..., :3].astype(int))
        world.destroy(camera)
    return found[0], found[1][..., 2]


def seen(distance, yaw, name=CAR, lamps=0, **attributes):
    """The pixels of a vehicle at a distance: colours (n, 3), blue, green, red."""
    world = World(town("grid"), Kept())
    vehicle = spawn(world, name, [[distance + 2.4, 41.75, 0], [0, yaw, 0]], **attributes)
    world.lamps[vehicle.id] = lamps
    picture, labels = pictures(world)
    return picture[labels == vehicle.tag]


def share(colours, condition):
    return float(condition(*colours.T).mean())


def is_red(blue, green, red):
    return (red > 150) & (blue < 90) & (green < 90)


def is_white(blue, green, red):
    return np.minimum(np.minimum(blue, green), red) > 220


@pytest.mark.parametrize("distance", [10, 30])
@pytest.mark.parametrize("name", [CAR, "vehicle.audi.a2", "vehicle.carlamotors.carlacola", "vehicle.mitsubishi.fusorosa"])
def test_front_and_rear_of_vehicles_differ(distance, name):
    front, rear = (seen(distance, yaw, name, color="17,37,103") for yaw in (180.0, 0.0))
    assert share(front, is_white) > 0.03 and share(front, is_red) == 0.0
    assert share(rear, is_red) > 0.03 and share(rear, is_white) < share(front, is_white)


def test_sides_of_a_vehicle_are_shaded_apart():
    oblique = seen(10, 140.0, color="120,120,120")
    assert len({tuple(colour) for colour in oblique.tolist() if len(set(colour)) == 1}) >= 2


def test_lamps_show_the_light_state():
    calm, braking = seen(10, 0.0), seen(10, 0.0, lamps=BRAKE)
    assert share(braking, lambda b, g, r: r > 250) > 0.05 > share(calm, lambda b, g, r: r > 250)

    def amber(blue, green, red):
        return (red > 240) & (np.abs(green - 165) < 10) & (blue < 20)

    world = World(town("grid"), Kept())
    vehicle = spawn(world, CAR, [[12.4, 41.75, 0], [0, 0, 0]])
    middles = {}
    for lamps in (0, LEFT, RIGHT):
        world.lamps[vehicle.id] = lamps
        columns = np.nonzero(amber(*pictures(world)[0].transpose(2, 0, 1)))[1]
        middles[lamps] = columns.mean() if len(columns) else None
    assert middles[0] is None and middles[LEFT] < SIZE[0] / 2 - 10 and middles[RIGHT] > SIZE[0] / 2 + 10


@pytest.mark.parametrize("yaw", [0.0, 33.0, 90.0, 180.0])
def test_painted_vehicles_keep_the_silhouettes_of_labels(yaw):
    world = World(town("grid"), Kept())
    empty, _ = pictures(world)
    spawn(world, CAR, [[12.4, 41.75, 0], [0, yaw, 0]], color="255,0,255")
    picture, labels = pictures(world)
    assert ((picture != empty).any(-1) != (labels == Tag.CAR)).mean() < 1e-3


def test_a_vehicle_beside_the_camera_is_painted_too():
    world = World(town("grid"), Kept())
    spawn(world, CAR, [[0.5, 44.5, 0], [0, 0, 0]], color="10,200,10")
    picture, labels = pictures(world)
    assert (labels == Tag.CAR).sum() > 1000
    assert (picture[labels == Tag.CAR] != (0, 0, 0)).any()


def test_walkers_have_legs_trunk_and_head():
    world = World(town("grid"), Kept())
    spawn(world, "walker.pedestrian.0001", [[8, 41.75, 0.9], [0, 0, 0]])
    picture, labels = pictures(world)
    rows, columns = np.nonzero(labels == Tag.PEDESTRIAN)
    widths = [int((labels[row] == Tag.PEDESTRIAN).sum()) for row in range(rows.min(), rows.max() + 1)]
    head, trunk, legs = widths[2], widths[len(widths) // 3], widths[-3]
    assert head < trunk > legs and head <= 0.7 * trunk
    parts = [picture[row, int(columns.mean())] for row in (rows.min() + 2, rows.min() + len(widths) // 3, rows.max() - 3)]
    assert all(np.abs(one - other).max() > 40 for one, other in pairwise(parts))


def test_what_is_below_the_ground_is_not_seen():
    world = World(town("grid"), Kept())
    vehicle = spawn(world, CAR, [[12.4, 41.75, 0], [0, 0, 0]])
    assert (pictures(world)[1] == Tag.CAR).any()
    world.bodies.motion[vehicle.row, 2] = -500.0
    world.driven = {}  # nobody puts it back onto the road
    assert not (pictures(world)[1] == Tag.CAR).any()


def test_cars_of_the_server_have_many_colours():
    world = World(town("grid"), Kept())
    Population(cars=12).spawn(world)
    assert len({actor.attributes["color"] for actor in world.cars.actors}) > 6


def test_cones_and_barriers_are_striped_and_boxes_are_not():
    for name, stripes in (("trafficcone01", True), ("streetbarrier", True), ("box01", False)):
        world = World(town("grid"), Kept())
        spawn(world, f"static.prop.{name}", [[6, 41.75, 0], [0, 0, 0]])
        picture, labels = pictures(world)
        assert (share(picture[labels == Tag.STATIC], is_white) > 0.1) is stripes


def test_lights_have_stop_lines_across_their_lanes():
    world = World(town("grid"), Kept())
    ground, place = world.town.ground, world.lights.places[0]
    for _, lane in place.stops:
        ends = stop_line(place.road, lane, place.signal.orientation)
        along = ends[0] + np.linspace(0.1, 0.9, 9)[:, None] * (ends[1] - ends[0])
        assert (ground.labels.ravel()[ground.at(along)] == Tag.ROAD_LINE).all()
        before = along + 3.0 * np.array([-1, 1]) * (ends[1] - ends[0])[::-1] / np.linalg.norm(ends[1] - ends[0])
        after = 2 * along - before
        assert any((ground.labels.ravel()[ground.at(other)] == Tag.ROAD).all() for other in (before, after))
