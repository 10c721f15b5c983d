"""What can be spawned, in the words of CARLA's blueprints; a few attributes more exist only here and say so."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_sims.carla.standin.layouts import Attribute
from robo_sims.carla.standin.physics.parameters import VEHICLES, Vehicle
from robo_sims.carla.standin.props import PROPS
from robo_sims.carla.standin.responses import Refused

WALKERS = tuple(f"walker.pedestrian.{number:04}" for number in range(1, 53))
CHILDREN = (*range(9, 15), 48, 49)
"""Numbers of walkers, as are the others."""
WOMEN = (1, 3, 5, 6, 9, 10, 12, 17, 18, 20, 22, 24, 27, 28, 29, 31, 33, 35, 38, 40, 42, 44, 46, 48)
SECOND = 15
"""The first of generation 2."""
DRIVERS = ("user", "traffic")
"""Of a vehicle: whoever sends controls, or this server; of a walker too. No real server has the attribute."""
DYNAMICS = ("kinematic", "dynamic")


@dataclass(frozen=True)
class Property:
    """One attribute of a blueprint."""

    name: str
    kind: Attribute
    default: str
    recommended: tuple[str, ...] = ()
    modifiable: bool = True
    strict: bool = False
    """Whether only what is recommended may be set."""

    def encoded(self) -> list[object]:
        """Returns it as the client reads it."""
        return [self.name, int(self.kind), self.default, list(self.recommended), self.modifiable, self.strict]


@dataclass(frozen=True)
class Blueprint:
    """One thing that can be spawned."""

    name: str
    properties: tuple[Property, ...] = field(default=())

    def encoded(self, number: int) -> list[object]:
        """Returns it as the client reads it: its tags are the parts of its name."""
        return [number, self.name, self.name.replace(".", ","), [part.encoded() for part in self.properties]]

    def values(self, given: list[list[object]]) -> dict[str, str]:
        """Returns attributes by name: those that were given over the defaults; raises Refused for what is no text."""
        found = {part.name: part.default for part in self.properties}
        for name, _, value in given:
            if not isinstance(name, str) or not isinstance(value, str):
                raise Refused(f"an attribute of {self.name} is no text")
            found[name] = value
        return found


def _fixed(name: str, kind: Attribute, value: object) -> Property:
    return Property(name, kind, str(value), modifiable=False)


def _number(name: str, value: float) -> Property:
    return Property(name, Attribute.FLOAT, str(value))


ROLE = Property("role_name", Attribute.STRING, "autopilot", ("autopilot", "scenario", "ego_vehicle", "hero"))
DRIVER = (
    Property("driver", Attribute.STRING, "user", DRIVERS, strict=True),
    Property("driver_seed", Attribute.INT, "0"),
)
TICK = _number("sensor_tick", 0.0)


def _vehicle(vehicle: Vehicle) -> Blueprint:
    colours = ("17,37,103", "180,44,44", "220,220,220", "45,45,45")
    return Blueprint(
        vehicle.name,
        (
            ROLE,
            *DRIVER,
            Property("dynamics", Attribute.STRING, "", ("", *DYNAMICS), strict=True),
            Property("color", Attribute.COLOUR, colours[0], colours),
            Property("sticky_control", Attribute.BOOL, "true"),
            Property("terramechanics", Attribute.BOOL, "false"),
            _fixed("object_type", Attribute.STRING, ""),
            _fixed("base_type", Attribute.STRING, vehicle.kind),
            _fixed("special_type", Attribute.STRING, vehicle.special),
            _fixed("generation", Attribute.INT, vehicle.generation),
            _fixed("number_of_wheels", Attribute.INT, vehicle.wheels),
            _fixed("has_lights", Attribute.BOOL, "false" if vehicle.kind == "bicycle" else "true"),
            _fixed("has_dynamic_doors", Attribute.BOOL, "false"),
        ),
    )


def _walker(name: str) -> Blueprint:
    number = int(name[-4:])
    return Blueprint(
        name,
        (
            ROLE,
            *DRIVER,
            Property("is_invincible", Attribute.BOOL, "true"),
            Property("speed", Attribute.FLOAT, "1.4", ("0.0", "1.4", "2.8")),
            Property("can_use_wheelchair", Attribute.BOOL, "false", modifiable=False),
            Property("use_wheelchair", Attribute.BOOL, "false"),
            _fixed("gender", Attribute.STRING, "female" if number in WOMEN else "male"),
            _fixed("age", Attribute.STRING, "child" if number in CHILDREN else "adult"),
            _fixed("generation", Attribute.INT, 1 if number < SECOND else 2),
        ),
    )


def _camera(kind: str, *more: Property) -> Blueprint:
    size = (Property("image_size_x", Attribute.INT, "800"), Property("image_size_y", Attribute.INT, "600"))
    return Blueprint(f"sensor.camera.{kind}", (ROLE, *size, _number("fov", 90.0), TICK, *more))


_AXES = ("x", "y", "z")
_IMU = (
    *(_number(f"noise_accel_stddev_{axis}", 0.0) for axis in _AXES),
    *(_number(f"noise_gyro_stddev_{axis}", 0.0) for axis in _AXES),
    *(_number(f"noise_gyro_bias_{axis}", 0.0) for axis in _AXES),
)
_GNSS = tuple(_number(f"noise_{axis}_{kind}", 0.0) for axis in ("lat", "lon", "alt") for kind in ("stddev", "bias"))
_SEED = Property("noise_seed", Attribute.INT, "0")
_LIDAR = (
    Property("channels", Attribute.INT, "32"),
    _number("range", 10.0),
    Property("points_per_second", Attribute.INT, "56000"),
    _number("rotation_frequency", 10.0),
    _number("upper_fov", 10.0),
    _number("lower_fov", -30.0),
    _number("horizontal_fov", 360.0),
    _number("atmosphere_attenuation_rate", 0.004),
)
SENSORS = (
    _camera("rgb", _number("gamma", 2.2)),
    _camera("semantic_segmentation"),
    _camera("depth"),
    Blueprint("sensor.other.collision", (ROLE,)),
    Blueprint("sensor.other.lane_invasion", (ROLE,)),
    Blueprint("sensor.other.imu", (ROLE, TICK, _SEED, *_IMU)),
    Blueprint("sensor.other.gnss", (ROLE, TICK, _SEED, *_GNSS)),
    Blueprint("sensor.lidar.ray_cast", (ROLE, TICK, *_LIDAR)),
)
SIZE = Property("size", Attribute.STRING, "medium", modifiable=False)
BLUEPRINTS = (
    *(_vehicle(vehicle) for vehicle in VEHICLES),
    *(_walker(name) for name in WALKERS),
    *SENSORS,
    *(Blueprint(name, (ROLE, SIZE)) for name in PROPS),
    Blueprint("controller.ai.walker", (ROLE,)),
)
BY_NAME = {blueprint.name: blueprint for blueprint in BLUEPRINTS}
ENCODED = [blueprint.encoded(number) for number, blueprint in enumerate(BLUEPRINTS, 1)]
