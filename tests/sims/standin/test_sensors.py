"""What the real client decodes of each sensor, beside what follows from geometry."""

import math

import cv2
import numpy as np
import pytest

pytest.importorskip("msgpack")

from robo_sims.carla.standin.sensors.camera import Camera, View, fixed_point
from robo_sims.carla.standin.sensors.scene import Boxes

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
result["rgb"] = pixels(images["rgb"])[42, 42].tolist()
down = pixels(above[1].get(timeout=5))[20:, :, 2]
result["own"] = [int((down == 14).any(1).sum()), int((down == 14).any(0).sum())]
result["above"] = int(down[22, 70])
"""
    )
    assert result["frames"] == [0, 0, 0] and result["size"] == [84, 84, 90.0, 84 * 84 * 4]
    assert result["tags"] == [11, 14, 1]  # sky, car, road
    # The other's rear is 20 m ahead; row 80 looks down by 38.5 pixels at a focal length of 42.
    assert result["depth"] == pytest.approx([20.0, 1.2 * 42 / 38.5, 1000.0], rel=1e-3)
    assert result["rgb"] == [20, 10, 200, 255]
    # From 21 m the car's roof (4.8 x 2 m at 1.5 m) and 42 pixels of focal length: 10 by 4 pixels, and those that are touched.
    assert result["own"] == [pytest.approx(4.8 * 42 / 19.5, abs=2), pytest.approx(2 * 42 / 19.5, abs=2)]
    assert result["above"] == 10


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
    assert result["frames"] == [3, 7, 11, 15, 19]
    assert "image_size_x='100000'" in result["wrong"]


def test_the_outline_of_a_box_is_the_hull_of_its_corners_from_every_side():
    random = np.random.default_rng(0)
    drawn = 0
    for _ in range(200):
        x, y, yaw, length, width, height = random.uniform([-9, -9, -4, 0.3, 0.3, 0.3], [9, 9, 4, 4, 4, 4])
        box = Boxes(
            np.array([[x, y, yaw, length, width, 0.5, 0.5 + height]]), *(np.zeros((1, *more), int) for more in ((), (3,), ()))
        )
        pose = np.array([*random.uniform([-9, -9, 0], [9, 9, 9]), 0.0, 0.0, 0.0])
        pose[3:5] = -np.degrees(np.arctan2(pose[2], 9)), np.degrees(np.arctan2(y - pose[1], x - pose[0]))
        view = View(Camera(60, 60, 90.0), pose)
        corners = (box.corners[0] - view.place) @ view.turn
        for _, outline in view.outlines(box, -1):
            if corners[:, 0].min() > 0.1:
                f = view.camera.focal
                pixels = np.stack([29.5 + f * corners[:, 1] / corners[:, 0], 29.5 - f * corners[:, 2] / corners[:, 0]], axis=1)
                wanted, got = np.zeros((60, 60), np.uint8), np.zeros((60, 60), np.uint8)
                cv2.fillConvexPoly(wanted, cv2.convexHull(fixed_point(pixels)), 1, cv2.LINE_8, 4)
                cv2.fillConvexPoly(got, outline, 1, cv2.LINE_8, 4)
                assert (wanted != got).sum() <= 1  # where a corner falls almost on an edge
                drawn += 1
    assert drawn > 100
