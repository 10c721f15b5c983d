"""Sensors by the names of their blueprints."""

from __future__ import annotations

from carla_standin.sensors.cameras import Colour, Cosmos, Depth, Instance, Semantic
from carla_standin.sensors.collision_sensor import Collision
from carla_standin.sensors.detectors import Obstacle, Radar
from carla_standin.sensors.event_camera import Dvs
from carla_standin.sensors.imu_gnss import Gnss, Imu
from carla_standin.sensors.lidar import Lidar, SemanticLidar
from carla_standin.sensors.sensor import Sensor
from carla_standin.sensors.surface_cameras import Normals, OpticalFlow

KINDS: dict[str, type[Sensor]] = {
    "sensor.camera.rgb": Colour,
    "sensor.camera.semantic_segmentation": Semantic,
    "sensor.camera.instance_segmentation": Instance,
    "sensor.camera.depth": Depth,
    "sensor.camera.normals": Normals,
    "sensor.camera.optical_flow": OpticalFlow,
    "sensor.camera.dvs": Dvs,
    "sensor.camera.cosmos_visualization": Cosmos,
    "sensor.other.collision": Collision,
    "sensor.other.imu": Imu,
    "sensor.other.gnss": Gnss,
    "sensor.other.radar": Radar,
    "sensor.other.obstacle": Obstacle,
    "sensor.lidar.ray_cast": Lidar,
    "sensor.lidar.ray_cast_semantic": SemanticLidar,
}
"""`sensor.other.lane_invasion` is missing: the client computes it."""
