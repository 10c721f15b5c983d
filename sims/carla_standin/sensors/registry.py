"""Table of the sensors that the stand-in offers: name of a blueprint -> class."""

from __future__ import annotations

from carla_standin.sensors.cameras import CosmosCamera, DepthCamera, InstanceCamera, RgbCamera, SemanticCamera
from carla_standin.sensors.collision_sensor import Collision
from carla_standin.sensors.detectors import Obstacle, Radar
from carla_standin.sensors.event_camera import EventCamera
from carla_standin.sensors.imu_gnss import Gnss, Imu
from carla_standin.sensors.lidar import Lidar, SemanticLidar
from carla_standin.sensors.sensor import Sensor
from carla_standin.sensors.surface_cameras import NormalsCamera, OpticalFlowCamera

KINDS: dict[str, type[Sensor]] = {
    "sensor.camera.rgb": RgbCamera,
    "sensor.camera.semantic_segmentation": SemanticCamera,
    "sensor.camera.instance_segmentation": InstanceCamera,
    "sensor.camera.depth": DepthCamera,
    "sensor.camera.normals": NormalsCamera,
    "sensor.camera.optical_flow": OpticalFlowCamera,
    "sensor.camera.dvs": EventCamera,
    "sensor.camera.cosmos_visualization": CosmosCamera,
    "sensor.other.collision": Collision,
    "sensor.other.imu": Imu,
    "sensor.other.gnss": Gnss,
    "sensor.other.radar": Radar,
    "sensor.other.obstacle": Obstacle,
    "sensor.lidar.ray_cast": Lidar,
    "sensor.lidar.ray_cast_semantic": SemanticLidar,
}
"""Blueprint -> class of the sensor; no `sensor.other.lane_invasion`, which the client computes."""
