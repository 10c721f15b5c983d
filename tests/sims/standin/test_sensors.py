"""What the real client decodes of each sensor, beside what follows from geometry."""

import math

import cv2
import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin.sensors.projection import Pinhole, View, fixed_point
from carla_standin.sensors.scene import Boxes

SENSORS = """
import numpy
kept = []  # a client stops listening when its object is gone
def sensor(name, where, to, **attributes):
    made, got = spawn(name, where, to, **attributes), queue.Queue()
    made.listen(got.put)
    kept.append(made)
    return made, got
def pixels(image):
    return numpy.frombuffer(image.raw_data, numpy.uint8).reshape(image.height, image.width, 4).astype(int)
straight = carla.Transform(carla.Location(0, 41.75, 0.3), carla.Rotation(yaw=0))
"""


@pytest.mark.slow
def test_cameras_see_road_sky_and_a_car_at_its_distance(client):
    result = client(
        SENSORS
        + """
vehicle = car(straight)
other = car(carla.Transform(carla.Location(22.4, 41.75, 0.3), carla.Rotation(yaw=0)), color="200,10,20")
where = carla.Transform(carla.Location(x=0, z=1.2))
size = dict(image_size_x=84, image_size_y=84, fov=90)
names = "semantic_segmentation", "depth", "rgb"
cameras = {name: sensor("sensor.camera." + name, where, vehicle, **size) for name in names}
down = carla.Transform(carla.Location(z=21), carla.Rotation(pitch=-90))
above = sensor("sensor.camera.semantic_segmentation", down, vehicle, **size)
frame = world.tick()
images = {name: got.get(timeout=5) for name, (_, got) in cameras.items()}
result["frames"] = [image.frame - frame for image in images.values()]
result["size"] = [images["rgb"].width, images["rgb"].height, images["rgb"].fov, len(images["rgb"].raw_data)]
tags = pixels(images["semantic_segmentation"])[..., 2]
result["tags"] = [int(tags[0, 42]), int(tags[42, 42]), int(tags[80, 42])]
depth = pixels(images["depth"])
metres = 1000 * (depth[..., 2] + 256 * depth[..., 1] + 65536 * depth[..., 0]) / (256**3 - 1)
result["depth"] = [float(metres[42, 42]), float(metres[80, 42]), float(metres[0, 42])]
result["rgb"] = pixels(images["rgb"])[tags == 14].tolist()
down = pixels(above[1].get(timeout=5))[20:, :, 2]
result["own"] = [int((down == 14).any(1).sum()), int((down == 14).any(0).sum())]
result["above"] = int(down[22, 70])
"""
    )
    assert result["frames"] == [0, 0, 0] and result["size"] == [84, 84, 90.0, 84 * 84 * 4]
    assert result["tags"] == [11, 14, 1]  # sky, car, road
    # The other's rear is 20 m ahead; row 80 looks down by 38.5 pixels at a focal length of 42.
    assert result["depth"] == pytest.approx([20.0, 1.2 * 42 / 38.5, 1000.0], rel=1e-3)
    body = [27, 18, 198, 255]  # of (20, 10, 200) as a rear is shaded; it has a window and lamps too
    assert body in result["rgb"] and len({tuple(pixel) for pixel in result["rgb"]}) > 2
    # From 21 m the car's roof (4.8 x 2 m at 1.5 m) and 42 pixels of focal length: 10 by 4 pixels, and those that are touched.
    assert result["own"] == [pytest.approx(4.8 * 42 / 19.5, abs=2), pytest.approx(2 * 42 / 19.5, abs=2)]
    assert result["above"] == 10


@pytest.mark.slow
def test_inertial_satellite_and_lidar_follow_from_the_pose(client):
    result = client(
        SENSORS
        + """
vehicle = car(straight)
_, imu = sensor("sensor.other.imu", carla.Transform(), vehicle)
_, gnss = sensor("sensor.other.gnss", carla.Transform(), vehicle)
world.spawn_actor(library.find("vehicle.audi.a2"), carla.Transform(carla.Location(300, 200, 0)))  # far away
_, lidar = sensor("sensor.lidar.ray_cast", carla.Transform(carla.Location(z=2)), vehicle, range=30, channels=8)
world.tick()
still = imu.get(timeout=5)
result["still"] = [still.accelerometer.x, still.accelerometer.z, still.gyroscope.z, still.compass]
place, seen = gnss.get(timeout=5), world.get_map().transform_to_geolocation(vehicle.get_location())
result["places"] = [place.latitude, place.longitude, seen.latitude, seen.longitude]
points = numpy.frombuffer(lidar.get(timeout=5).raw_data, numpy.float32).reshape(-1, 4)
result["low"], result["count"] = [float(points[:, 2].min()), float(points[:, 2].max())], len(points)
for _ in range(40):
    vehicle.apply_control(carla.VehicleControl(throttle=0.4, steer=0.3))
    world.tick()
    moving = imu.get(timeout=5)
speed = vehicle.get_velocity().length()
result["turn"] = [moving.gyroscope.z, moving.accelerometer.y, speed * moving.gyroscope.z]
"""
    )
    assert result["still"] == pytest.approx([0, 9.81, 0, math.pi / 2], abs=1e-5)
    assert result["places"][:2] == pytest.approx(result["places"][2:], abs=1e-9)
    assert result["low"] == pytest.approx([-2, -2], abs=1e-4) and result["count"] > 500
    rate, sideways, centripetal = result["turn"]
    assert rate > 0.1 and sideways == pytest.approx(centripetal, rel=0.25)


@pytest.mark.slow
def test_a_collision_and_a_crossed_line_are_told(client):
    result = client(
        SENSORS
        + """
vehicle, other = car(straight), car(carla.Transform(carla.Location(20, 41.75, 0.3), carla.Rotation(yaw=0)))
_, hits = sensor("sensor.other.collision", carla.Transform(), vehicle)
_, lines = sensor("sensor.other.lane_invasion", carla.Transform(), vehicle)
vehicle.set_target_velocity(carla.Vector3D(x=15))
speeds = {}
for _ in range(40):
    vehicle.apply_control(carla.VehicleControl(throttle=0.0))
    frame = world.tick()
    speeds[frame] = vehicle.get_velocity().x, other.get_velocity().x
hit = hits.get(timeout=5)
result["other"] = [hit.other_actor.id == other.id, hit.actor.id == vehicle.id]
result["impulse"] = [hit.normal_impulse.x, hit.normal_impulse.y]
result["speeds"] = [speeds[hit.frame - 1][0], *speeds[hit.frame]]
result["gap"] = other.get_location().x - vehicle.get_location().x
vehicle.set_transform(carla.Transform(carla.Location(-40, 41.75, 0.3), carla.Rotation(yaw=0)))
for step in range(60):
    vehicle.apply_control(carla.VehicleControl(throttle=0.6, steer=-0.05))
    world.tick()
result["lines"] = [str(mark.type) for mark in lines.get(timeout=3).crossed_lane_markings]
"""
    )
    assert result["other"] == [True, True]
    before, after, other = result["speeds"]
    # Equal masses that stay together share the speed; a step of coasting lies between.
    assert after == pytest.approx(before / 2, rel=0.02) and other == pytest.approx(after, rel=1e-5)
    assert result["impulse"] == [pytest.approx(-1850 * before / 2, rel=0.02), pytest.approx(0, abs=1e-3)]
    assert result["gap"] == pytest.approx(4.8, abs=1e-4)
    assert result["lines"] == ["Broken"]


@pytest.mark.slow
def test_a_sensor_with_a_period_measures_then(client):
    result = client(
        SENSORS
        + """
vehicle = car(straight)
_, gnss = sensor("sensor.other.gnss", carla.Transform(), vehicle, sensor_tick=0.2)
first = world.tick()
for _ in range(19):
    last = world.tick()
world.tick()
result["frames"] = [gnss.get(timeout=2).frame - first for _ in range(gnss.qsize())]
result["wrong"] = None
try:
    spawn("sensor.camera.rgb", carla.Transform(), vehicle, image_size_x=100000)
except RuntimeError as error:
    result["wrong"] = str(error)
"""
    )
    assert [frame for frame in result["frames"] if frame < 20] == [0, 4, 8, 12, 16]  # the first at once, as CARLA does
    assert "image_size_x='100000'" in result["wrong"]


AHEAD = """
vehicle = car(straight)
other = car(carla.Transform(carla.Location(22.4, 41.75, 0.3), carla.Rotation(yaw=0)))
other.set_target_velocity(carla.Vector3D(x=5))
"""
"""Two cars, the rear of one 20 m before the middle of the other."""


@pytest.mark.slow
def test_lidar_loses_points_as_its_attributes_say(client):
    result = client(
        SENSORS
        + """
vehicle = car(straight)
where, size = carla.Transform(carla.Location(z=2)), dict(range=30, channels=8, noise_seed=3)
whole = dict(dropoff_general_rate=0.0, dropoff_zero_intensity=0.0)
kinds = {
    "whole": whole,
    "half": whole | dict(dropoff_general_rate=0.5),
    "faint": dict(dropoff_general_rate=0.0, dropoff_zero_intensity=0.4, dropoff_intensity_limit=2.0),
    "bright": dict(dropoff_general_rate=0.0, dropoff_zero_intensity=1.0, dropoff_intensity_limit=0.5),
    "noisy": whole | dict(noise_stddev=0.1),
    "again": whole | dict(noise_stddev=0.1),
    "default": {},
}
lidars = {name: sensor("sensor.lidar.ray_cast", where, vehicle, **size, **more)[1] for name, more in kinds.items()}
world.tick()
clouds = {name: numpy.frombuffer(got.get(timeout=5).raw_data, numpy.float32).reshape(-1, 4) for name, got in lidars.items()}
result["count"] = {name: len(points) for name, points in clouds.items()}
result["intensity"] = [float(clouds["whole"][:, 3].min()), float(clouds["whole"][:, 3].max())]
away = {name: numpy.linalg.norm(points[:, :3].astype(float), axis=1) for name, points in clouds.items()}
result["noise"] = float((away["noisy"] - away["whole"]).std())
rays = {name: clouds[name][:, :3] / away[name][:, None] for name in ("whole", "noisy")}
result["turned"] = float(abs(rays["noisy"] - rays["whole"]).max())
result["defaults"] = [library.find("sensor.lidar.ray_cast").get_attribute(name).as_float() for name in (
    "dropoff_general_rate", "dropoff_intensity_limit", "dropoff_zero_intensity", "noise_stddev")]
"""
    )
    count = result["count"]
    assert count["half"] == pytest.approx(0.5 * count["whole"], rel=0.1)
    # The rest of what is lost at intensity 0 is 1 - intensity / limit: about half at intensities of about 1 and a limit of 2.
    mean = sum(result["intensity"]) / 2
    assert count["faint"] == pytest.approx((1 - 0.4 * (1 - mean / 2)) * count["whole"], rel=0.1)
    assert count["bright"] == count["noisy"] == count["whole"]  # none is as faint as the limit
    assert count["default"] == pytest.approx(0.55 * count["whole"], rel=0.1)
    assert result["noise"] == pytest.approx(0.1, rel=0.15) and result["turned"] < 1e-5  # along the rays
    assert result["defaults"] == pytest.approx([0.45, 0.8, 0.4, 0.0])


@pytest.mark.slow
def test_detectors_tell_the_car_ahead(client):
    result = client(
        SENSORS
        + AHEAD
        + """
front = carla.Transform(carla.Location(x=2.5, z=1.0))
_, lidar = sensor("sensor.lidar.ray_cast_semantic", carla.Transform(carla.Location(z=1.0)), vehicle, range=50,
    channels=1, upper_fov=0, lower_fov=0, points_per_second=20000, rotation_frequency=20)
_, radar = sensor("sensor.other.radar", front, vehicle, horizontal_fov=10, vertical_fov=4, points_per_second=4000)
_, obstacle = sensor("sensor.other.obstacle", front, vehicle, distance=30, hit_radius=0.5, only_dynamics="True")
_, near = sensor("sensor.other.obstacle", front, vehicle, distance=5, hit_radius=0.5)
world.tick()
gap = float(other.get_location().x - 2.4 - vehicle.get_location().x)
result["gap"], result["ids"] = gap, [vehicle.id, other.id]
points = [(p.point.x, p.point.y, p.cos_inc_angle, p.object_idx, p.object_tag) for p in lidar.get(timeout=5)]
result["points"] = [point for point in points if abs(point[1]) < 0.9 and point[0] > 0]
found = [(d.velocity, d.azimuth, d.altitude, d.depth) for d in radar.get(timeout=5)]
result["radar"] = [d for d in found if abs(d[3] - (gap - 2.5)) < 0.2]
result["others"] = max(abs(d[0]) for d in found if d[3] < gap - 5) if any(d[3] < gap - 5 for d in found) else 0.0
seen = obstacle.get(timeout=5)
result["obstacle"] = [seen.actor.id, seen.other_actor.id, seen.distance]
result["near"] = near.qsize()
result["speed"] = other.get_velocity().x
"""
    )
    gap, (own, other) = result["gap"], result["ids"]
    assert len(result["points"]) > 3
    for x, _, cosine, actor, tag in result["points"]:
        assert (x, cosine, actor, tag) == (pytest.approx(gap, abs=0.05), pytest.approx(1.0, abs=0.01), other, 14)
    assert len(result["radar"]) > 10
    for velocity, azimuth, altitude, _ in result["radar"]:
        assert velocity == pytest.approx(result["speed"] * math.cos(azimuth) * math.cos(altitude), rel=0.01)
        assert abs(azimuth) < math.radians(5.1) and abs(altitude) < math.radians(2.1)
    assert result["others"] == 0.0  # the ground stands
    assert result["obstacle"] == [own, other, pytest.approx(gap - 2.5, abs=1e-3)] and result["near"] == 0


@pytest.mark.slow
def test_sensors_that_hit_nothing_send_no_points_but_measure(client):
    result = client(
        SENSORS
        + """
high, period = carla.Transform(carla.Location(z=50)), dict(sensor_tick=1.0)
names = "sensor.other.radar", "sensor.lidar.ray_cast", "sensor.lidar.ray_cast_semantic"
sensors = {name: sensor(name, high, None, range=0.2, **period)[1] for name in names}
_, obstacle = sensor("sensor.other.obstacle", high, None, **period)
_, events = sensor("sensor.camera.dvs", high, None, image_size_x=16, image_size_y=12, **period)
for _ in range(50):
    world.tick()
result["points"] = {name: [len(got.get(timeout=2)) for _ in range(3)] for name, got in sensors.items()}
result["more"] = [got.qsize() for got in (*sensors.values(), obstacle, events)]
result["refused"] = []
for name, wrong in (("camera.dvs", dict(positive_threshold=0)), ("other.obstacle", dict(hit_radius="nan")),
        ("other.obstacle", dict(only_dynamics="maybe")), ("lidar.ray_cast", dict(dropoff_general_rate=1.5))):
    try:
        sensor("sensor." + name, high, None, **wrong)
    except (RuntimeError, ValueError) as error:
        result["refused"].append(str(error))
"""
    )
    assert all(points == [0, 0, 0] for points in result["points"].values()) and result["more"] == [0] * 5
    assert len(result["refused"]) == 4 and "positive_threshold='0'" in result["refused"][0]


@pytest.mark.slow
def test_every_camera_of_carla_is_decoded(client):
    result = client(
        SENSORS
        + AHEAD
        + """
where, size = carla.Transform(carla.Location(x=1.5, z=1.2)), dict(image_size_x=84, image_size_y=84)
names = "semantic_segmentation", "instance_segmentation", "normals", "optical_flow", "dvs", "cosmos_visualization"
cameras = {name: sensor("sensor.camera." + name, where, vehicle, **size)[1] for name in names}
distorted = dict(lens_circle_multiplier=3.0, lens_circle_falloff=3.0, chromatic_aberration_intensity=0.5,
    chromatic_aberration_offset=0)
_, rgb = sensor("sensor.camera.rgb", where, vehicle, **size, **distorted)
for _ in range(30):
    frame, before = world.tick(), other.get_location().x
images = {name: [got.get(timeout=5) for _ in range(30)][-1] for name, got in cameras.items() if name != "dvs"}
images["dvs"] = cameras["dvs"].get(timeout=5)
while cameras["dvs"].qsize():
    images["dvs"] = cameras["dvs"].get(timeout=5)
tags, instance = pixels(images["semantic_segmentation"]), pixels(images["instance_segmentation"])
result["tags"] = bool((tags[..., 2] == instance[..., 2]).all())
ids = instance[..., 1] + 256 * instance[..., 0]
result["ids"] = [int(ids[42, 42]), other.id, int(ids[80, 42])]
normals = pixels(images["normals"])[..., 2::-1] / 127.5 - 1
result["normals"] = [normals[42, 42].tolist(), normals[80, 42].tolist()]
flow = numpy.frombuffer(images["optical_flow"].raw_data, numpy.float32).reshape(84, 84, 2)
result["flow"], result["coded"] = flow[[42, 80], [43, 42]].tolist(), images["optical_flow"].get_color_coded_flow().width
gap = other.get_location().x - 2.4 - vehicle.get_location().x - 1.5
result["gap"], result["speed"] = gap, other.get_velocity().x
events = [(e.x, e.y, e.t, e.pol) for e in images["dvs"]]
result["events"], result["late"] = len(events), all(0 <= e[2] <= images["dvs"].timestamp * 1e9 + 1 for e in events)
result["sorted"] = events == sorted(events, key=lambda e: e[2])
result["where"] = all(bool((tags[y - 2 : y + 3, x - 2 : x + 3, 2] == 14).any()) for x, y, _, _ in events)
result["cosmos"] = pixels(images["cosmos_visualization"])[[42, 80], 42].tolist()
result["rgb"] = rgb.get(timeout=5).width
"""
    )
    assert result["tags"] and result["ids"][0] == result["ids"][1] and result["ids"][2] == 0
    (facing, ground), gap, speed = result["normals"], result["gap"], result["speed"]
    assert facing == pytest.approx([-1, 0, 0], abs=0.01) and ground == pytest.approx([0, 0, 1], abs=0.01)
    (x, y), still = result["flow"]
    # Column 43 is 1.5 pixels to the right of the axis; what goes away moves towards it.
    before = 1.5 * gap / (gap - 0.05 * speed)
    assert x == pytest.approx(2 * (1.5 - before) / 84, rel=0.05) and abs(y) < 2e-3 and still == pytest.approx([0, 0], abs=1e-4)
    assert result["coded"] == result["rgb"] == 84
    assert result["events"] > 0 and result["late"] and result["sorted"] and result["where"]  # only the other car moves
    assert result["cosmos"] == [[230, 120, 40, 255], [0, 0, 0, 255]]


def test_box_outline_is_hull_of_corners_from_every_side():
    random = np.random.default_rng(0)
    drawn = 0
    for _ in range(200):
        x, y, yaw, length, width, height = random.uniform([-9, -9, -4, 0.3, 0.3, 0.3], [9, 9, 4, 4, 4, 4])
        box = Boxes(
            np.array([[x, y, yaw, length, width, 0.5, 0.5 + height]]), *(np.zeros((1, *more), int) for more in ((), (3,), ()))
        )
        pose = np.array([*random.uniform([-9, -9, 0], [9, 9, 9]), 0.0, 0.0, 0.0])
        pose[3:5] = -np.degrees(np.arctan2(pose[2], 9)), np.degrees(np.arctan2(y - pose[1], x - pose[0]))
        view = View(Pinhole(60, 60, 90.0), pose)
        corners = (box.corners[0] - view.place) @ view.turn
        for _, outline in view.outlines(box):
            if corners[:, 0].min() > 0.1:
                f = view.camera.focal
                pixels = np.stack([29.5 + f * corners[:, 1] / corners[:, 0], 29.5 - f * corners[:, 2] / corners[:, 0]], axis=1)
                wanted, got = np.zeros((60, 60), np.uint8), np.zeros((60, 60), np.uint8)
                cv2.fillConvexPoly(wanted, cv2.convexHull(fixed_point(pixels)), 1, cv2.LINE_8, 4)
                cv2.fillConvexPoly(got, outline, 1, cv2.LINE_8, 4)
                assert (wanted != got).sum() <= 1  # where a corner falls almost on an edge
                drawn += 1
    assert drawn > 100
