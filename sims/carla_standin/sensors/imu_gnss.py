"""IMU (accelerometer, gyroscope and compass) and GNSS receiver."""

from __future__ import annotations

import math

import msgpack
import numpy as np
from typing_extensions import override

from carla_standin.actors import AX, AZ, WX, WZ, YAW, Actor, X, Y, Z
from carla_standin.layouts import SensorType
from carla_standin.physics.state import GRAVITY
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.projection import axes
from carla_standin.sensors.sensor import Sensor, setting

UPHOLDING = np.array([0.0, 0.0, GRAVITY])
"""Acceleration [m/s2] that an accelerometer at rest reads: upwards, against gravity."""
EARTH = 6378137.0
SCALE = 0.9996
"""[m] radius and the scale on the central meridian, as in CARLA."""


class Noise:
    """Gaussian noise and biases of a sensor, drawn from its own seed."""

    def __init__(self, actor: Actor, names: list[str], scales: str, biases: str | None) -> None:
        self.random = np.random.default_rng([int(setting(actor, "noise_seed", 0, 2**31)), actor.place])
        self.scale = np.array([setting(actor, scales.format(name), 0, 1e6) for name in names])
        self.bias = np.array([setting(actor, biases.format(name), -1e6, 1e6) if biases else 0.0 for name in names])

    def added(self, values: list[float]) -> list[float]:
        """Return values with noise and biases."""
        noisy = np.array(values) + self.bias + self.scale * self.random.standard_normal(len(values))
        return [float(value) for value in noisy]


class Imu(Sensor):
    """IMU: specific force [m/s2], rates [rad/s] in its own frame, and the angle from north [rad]."""

    kind = SensorType.IMU

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        self.force = Noise(actor, ["x", "y", "z"], "noise_accel_stddev_{}", None)
        self.rate = Noise(actor, ["x", "y", "z"], "noise_gyro_stddev_{}", "noise_gyro_bias_{}")

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        """Return one message with the specific force, the rotation rates and the compass angle.

        Force and rates are those of the vehicle that carries the sensor, expressed in the axes of the sensor.
        """
        motion = world.bodies.motion[self.actor.row]
        carrier = world.bodies.by_id.get(self.actor.parent)
        moving = motion if carrier is None else world.bodies.motion[carrier.row]
        turn = axes(*motion[3:6])
        force = (moving[AX : AZ + 1] + UPHOLDING) @ turn
        rates = np.radians(moving[WX : WZ + 1]) @ turn
        # North is -y; the compass turns clockwise.
        compass = math.radians(motion[YAW] + 90.0) % (2 * math.pi)
        return [msgpack.packb([self.force.added(list(force)), self.rate.added(list(rates)), compass])]


class Gnss(Sensor):
    """GNSS receiver: latitude, longitude [degree] and altitude [m], in the projection of the client's map."""

    kind = SensorType.GNSS

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        self.noise = Noise(actor, ["lat", "lon", "alt"], "noise_{}_stddev", "noise_{}_bias")

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        motion, road_map = world.bodies.motion[self.actor.row], world.town.road_map
        latitude, longitude = geographic(road_map.latitude, road_map.longitude, float(motion[X]), float(motion[Y]))
        return [msgpack.packb(self.noise.added([latitude, longitude, float(motion[Z])]))]


def geographic(latitude: float, longitude: float, x: float, y: float) -> tuple[float, float]:
    """Return latitude and longitude of a location, from those of the map's origin: a spherical transverse Mercator projection.

    Equal to the client's `Map.transform_to_geolocation` of 0.9.16, which uses only the origin of the map's geoReference, and
    whose latitude grows with y, though the compass has north at -y.
    """
    north, east = y / (EARTH * SCALE) + math.radians(latitude), x / (EARTH * SCALE)
    return (
        math.degrees(math.asin(math.sin(north) / math.cosh(east))),
        longitude + math.degrees(math.atan2(math.sinh(east), math.cos(north))),
    )
