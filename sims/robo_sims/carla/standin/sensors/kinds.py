"""Sensors by the names of their blueprints."""

from __future__ import annotations

from robo_sims.carla.standin.sensors.events import Collision
from robo_sims.carla.standin.sensors.inertial import Gnss, Imu
from robo_sims.carla.standin.sensors.lidar import Lidar
from robo_sims.carla.standin.sensors.pictures import Colour, Depth, Semantic
from robo_sims.carla.standin.sensors.sensor import Sensor

KINDS: dict[str, type[Sensor]] = {
    "sensor.camera.rgb": Colour,
    "sensor.camera.semantic_segmentation": Semantic,
    "sensor.camera.depth": Depth,
    "sensor.other.collision": Collision,
    "sensor.other.imu": Imu,
    "sensor.other.gnss": Gnss,
    "sensor.lidar.ray_cast": Lidar,
}
"""`sensor.other.lane_invasion` is not among them: the client finds out by itself."""
