"""Blueprints of all actors that can be spawned, with CARLA's names and a few extra attributes, marked as such."""

from __future__ import annotations

from dataclasses import dataclass, field

from carla_standin.errors import Refused
from carla_standin.layouts import Attribute
from carla_standin.physics.parameters import VEHICLES, Vehicle
from carla_standin.props import PROPS
from carla_standin.sensors.paint import COLOURS

WALKERS = tuple(f"walker.pedestrian.{number:04}" for number in range(1, 53))
CHILDREN = (*range(9, 15), 48, 49)
"""Numbers of the walkers that are children."""
WOMEN = (1, 3, 5, 6, 9, 10, 12, 17, 18, 20, 22, 24, 27, 28, 29, 31, 33, 35, 38, 40, 42, 44, 46, 48)
SECOND = 15
"""Number of the first walker whose blueprint is of CARLA's generation 2."""
DRIVERS = ("user", "traffic")
"""Values of the attribute `driver` of vehicles and walkers: the client, or this server. No real server has it."""
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
    """True if only the recommended values of the attribute are allowed."""

    def encoded(self) -> list[object]:
        """Return the attribute in the client's encoding; if no values are recommended, its default is, as in CARLA."""
        recommended = self.recommended or ((self.default,) if self.modifiable else ())
        return [self.name, int(self.kind), self.default, list(recommended), self.modifiable, self.strict]


@dataclass(frozen=True)
class Blueprint:
    """Type of an actor that can be spawned."""

    name: str
    properties: tuple[Property, ...] = field(default=())

    def encoded(self, number: int) -> list[object]:
        """Return the blueprint as CARLA's client decodes it; its tags are the parts of its name."""
        return [number, self.name, self.name.replace(".", ","), [part.encoded() for part in self.properties]]

    def values(self, given: list[list[object]]) -> dict[str, str]:
        """Return name -> value: the defaults, replaced by the given ones; raises Refused unless all are texts."""
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
    return Blueprint(
        vehicle.name,
        (
            ROLE,
            *DRIVER,
            Property("dynamics", Attribute.STRING, "", ("", *DYNAMICS), strict=True),
            Property("grip", Attribute.FLOAT, ""),
            Property("color", Attribute.COLOUR, COLOURS[0], COLOURS),
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
    return Blueprint(f"sensor.camera.{kind}", (ROLE, *size, _number("fov", 90.0), TICK, *_LENS, *more))


_AXES = ("x", "y", "z")
_IMU = (
    *(_number(f"noise_accel_stddev_{axis}", 0.0) for axis in _AXES),
    *(_number(f"noise_gyro_stddev_{axis}", 0.0) for axis in _AXES),
    *(_number(f"noise_gyro_bias_{axis}", 0.0) for axis in _AXES),
)
_GNSS = tuple(_number(f"noise_{axis}_{kind}", 0.0) for axis in ("lat", "lon", "alt") for kind in ("stddev", "bias"))
_SEED = Property("noise_seed", Attribute.INT, "0")
_LENS = (
    _number("lens_circle_falloff", 5.0),
    _number("lens_circle_multiplier", 0.0),
    _number("lens_k", -1.0),
    _number("lens_kcube", 0.0),
    _number("lens_x_size", 0.08),
    _number("lens_y_size", 0.08),
)
"""Attributes of a camera's lens, accepted and ignored: cameras are pinholes."""
_RGB = {
    "gamma": 2.2,
    "bloom_intensity": 0.675,
    "fstop": 1.4,
    "min_fstop": 1.2,
    "iso": 100.0,
    "lens_flare_intensity": 0.1,
    "shutter_speed": 200.0,
    "exposure_compensation": 0.0,
    "exposure_min_bright": 10.0,
    "exposure_max_bright": 12.0,
    "exposure_speed_up": 3.0,
    "exposure_speed_down": 1.0,
    "calibration_constant": 16.0,
    "focal_distance": 1000.0,
    "blur_amount": 1.0,
    "blur_radius": 0.0,
    "motion_blur_intensity": 0.45,
    "motion_blur_max_distortion": 0.35,
    "motion_blur_min_object_screen_size": 0.1,
    "slope": 0.88,
    "toe": 0.55,
    "shoulder": 0.26,
    "black_clip": 0.0,
    "white_clip": 0.04,
    "temp": 6500.0,
    "tint": 0.0,
    "chromatic_aberration_intensity": 0.0,
    "chromatic_aberration_offset": 0.0,
}
"""Attributes of CARLA's colour camera -> default; accepted and ignored, since there is no light."""
_EXPOSURE = (
    *(_number(name, value) for name, value in _RGB.items()),
    Property("blade_count", Attribute.INT, "5"),
    Property("exposure_mode", Attribute.STRING, "histogram", ("histogram", "manual")),
    Property("enable_postprocess_effects", Attribute.BOOL, "true"),
)
_DVS = (
    _number("positive_threshold", 0.3),
    _number("negative_threshold", 0.3),
    _number("sigma_positive_threshold", 0.0),
    _number("sigma_negative_threshold", 0.0),
    Property("refractory_period_ns", Attribute.INT, "0"),
    Property("use_log", Attribute.BOOL, "true"),
    _number("log_eps", 0.001),
)
_SCANNER = (
    Property("channels", Attribute.INT, "32"),
    _number("range", 10.0),
    Property("points_per_second", Attribute.INT, "56000"),
    _number("rotation_frequency", 10.0),
    _number("upper_fov", 10.0),
    _number("lower_fov", -30.0),
    _number("horizontal_fov", 360.0),
)
_LIDAR = (
    _number("atmosphere_attenuation_rate", 0.004),
    _SEED,
    _number("dropoff_general_rate", 0.45),
    _number("dropoff_intensity_limit", 0.8),
    _number("dropoff_zero_intensity", 0.4),
    _number("noise_stddev", 0.0),
)
_RADAR = (
    _number("horizontal_fov", 30.0),
    _number("vertical_fov", 30.0),
    _number("range", 100.0),
    Property("points_per_second", Attribute.INT, "1500"),
    _SEED,
)
_OBSTACLE = (
    _number("distance", 5.0),
    _number("hit_radius", 0.5),
    Property("only_dynamics", Attribute.BOOL, "false"),
    Property("debug_linetrace", Attribute.BOOL, "false"),
)
SENSORS = (
    _camera("rgb", *_EXPOSURE),
    _camera("semantic_segmentation"),
    _camera("instance_segmentation"),
    _camera("depth"),
    _camera("normals"),
    _camera("optical_flow"),
    _camera("dvs", *_EXPOSURE, *_DVS),
    _camera("cosmos_visualization"),
    Blueprint("sensor.other.collision", (ROLE,)),
    Blueprint("sensor.other.lane_invasion", (ROLE,)),
    Blueprint("sensor.other.imu", (ROLE, TICK, _SEED, *_IMU)),
    Blueprint("sensor.other.gnss", (ROLE, TICK, _SEED, *_GNSS)),
    Blueprint("sensor.other.radar", (ROLE, TICK, *_RADAR)),
    Blueprint("sensor.other.obstacle", (ROLE, TICK, *_OBSTACLE)),
    Blueprint("sensor.lidar.ray_cast", (ROLE, TICK, *_SCANNER, *_LIDAR)),
    Blueprint("sensor.lidar.ray_cast_semantic", (ROLE, TICK, *_SCANNER)),
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
