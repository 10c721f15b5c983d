"""Calls about a vehicle's physics: parameters as CARLA describes them, telemetry, wheels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from carla_standin.actors import VX, VY, Actor
from carla_standin.errors import Refused
from carla_standin.host import Host
from carla_standin.log_once import log_once
from carla_standin.physics.parameters import BY_NAME, GRIP, Vehicle
from carla_standin.physics.state import GRAVITY, One, pushed
from carla_standin.poses import numbers
from carla_standin.vehicles import effective, model_of

DRAG, FRICTION, BRAKE, RADIUS = 0.3, 3.5, 1500.0, 35.0
"""Values with which every vehicle starts: drag coefficient, tyre friction at the grip `GRIP`, brake torque [N m], wheel
radius [cm]."""
MASS_AT, DRAG_AT, WHEELS_AT = 11, 12, 15
"""Indices of mass, drag coefficient and wheels in the client's list of a vehicle's physical parameters."""
FRICTION_AT, STEER_AT, BRAKE_AT = 0, 2, 4
"""Indices of tyre friction, largest steering angle and brake torque in the client's list of a wheel's parameters."""
MOST = 100
"""Largest number of points of a curve, of gears, and of wheels that a client may send."""
_CURVE, _WHEEL = [[0.0, 0.0]], [*[0.0] * 9, [0.0] * 3]
SHAPE = [_CURVE, *[0.0] * 5, True, *[0.0] * 3, [[0.0] * 3], 0.0, 0.0, [0.0] * 3, _CURVE, [_WHEEL], True]
"""Pattern of a physics control: its nesting and types, whatever the values."""
FRONT = (0, 1)
"""Indices of the front wheels, which steer, in the order front left, front right, back left, back right."""


class Physics:
    """Remote calls that read and set a vehicle's physical parameters. In each of them `number` is the vehicle's id."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def control(self, number: int) -> list[object]:
        """Return the physics control that a client set last, or the default one of the vehicle's kind."""
        actor = self._vehicle(number)
        return actor.physics_control or physics_control(model_of(actor))

    def apply(self, number: int, wanted: Any) -> None:
        """Store a physics control and apply the fields that the models use."""
        actor = self._vehicle(number)
        group = self.host.world.group_of(actor)
        model = _changed(BY_NAME[actor.type_id], wanted)  # whose grip is that of FRICTION, whatever it was spawned with
        if _others(wanted) != _others(self.control(number)):
            log_once(
                "apply_physics_control: mass, drag, tyre friction, steering angle and brake torque count;"
                " the rest is stored and has no effect."
            )
        actor.physics_control, actor.model = wanted, model
        group.measure()

    def telemetry(self, number: int) -> list[object]:
        """Return the telemetry of a vehicle in CARLA's format; fields that the physical models do not have are 0."""
        actor = self._vehicle(number)
        world = self.host.world
        group, motion = world.group_of(actor), world.bodies.motion[actor.row]
        place = group.actors.index(actor)
        state, controls, parameters = (One(part, place) for part in (group.state, group.controls, group.parameters))
        force = model_of(actor).mass * float(pushed(state.forward, controls, parameters, state.functions)) / 4
        load = model_of(actor).mass * GRAVITY / 4
        radius = _radius(self.control(number))
        wheels = [
            [effective(actor).grip, 0.0, 0.0, state.forward / radius, load, 1.0, force * radius, force, 0.0, force / load, 0.0]
            for _ in range(4)
        ]
        speed = float(math.hypot(motion[VX], motion[VY]))
        record = world.bodies.records[actor.row]
        drag = float(parameters.drag) * speed**2 * model_of(actor).mass
        return [speed, controls.steer, controls.throttle, controls.brake, 0.0, int(record["gear"]), drag, wheels]

    def wheel_angle(self, number: int, wheel: int) -> float:
        """Return the steering angle [degree] of a wheel.

        wheel: 0 front left, 1 front right, 2 back left, 3 back right.
        """
        actor = self._vehicle(number)
        group = self.host.world.group_of(actor)
        return math.degrees(float(group.state.wheel[group.actors.index(actor)])) if wheel in FRONT else 0.0

    def _vehicle(self, number: int) -> Actor:
        actor = self.host.world.actor(number)
        if actor.type_id not in BY_NAME:
            raise Refused(f"actor {actor.id} ({actor.type_id}) is no vehicle")
        return actor


def physics_control(vehicle: Vehicle) -> list[object]:
    """Return the 17 fields of VehiclePhysicsControl; those that the models do not use are of an ordinary car."""
    places = [(front, side) for front in (True, False) for side in (-1, 1)]
    wheels = [_wheel(vehicle, front, side) for front, side in places]
    engine = [[[0.0, 400.0], [5000.0, 400.0]], 5000.0, 1.0, 0.15, 2.0, 0.35]
    gears = [True, 0.5, 10.0, 4.0, [[1.0, 0.5, 0.65]]]
    return [*engine, *gears, vehicle.mass, DRAG, [0.0, 0.0, 0.0], [[0.0, 1.0], [120.0, 1.0]], wheels, True]


def _wheel(vehicle: Vehicle, front: bool, side: int) -> list[object]:
    steer, hand_brake = (vehicle.max_steer, 0.0) if front else (0.0, 3000.0)
    place = [50.0 * vehicle.wheelbase * (1 if front else -1), 50.0 * vehicle.width * side, 0.0]  # [cm]
    return [FRICTION * vehicle.grip / GRIP, 0.25, steer, RADIUS, BRAKE, hand_brake, 3.0, 17.0, 1000.0, place]


def _require_shape(given: Any, pattern: Any) -> None:
    """Raise Refused unless `given` has the nested structure of `pattern`: clients cannot decode any other.

    Lists of one entry in the pattern may have any length.
    """
    if isinstance(pattern, list):
        many = len(pattern) == 1
        if not isinstance(given, list) or (len(given) > MOST if many else len(given) != len(pattern)):
            raise Refused("A physics control has another shape.", got=given)
        for part, wanted in zip(given, pattern * len(given) if many else pattern, strict=True):
            _require_shape(part, wanted)
    elif isinstance(pattern, bool):
        if not isinstance(given, bool):
            raise Refused("A physics control has a number instead of a flag.", got=given)
    else:
        numbers([given], 1, "A field of a physics control")


def _changed(vehicle: Vehicle, wanted: Any) -> Vehicle:
    """Return a copy of a vehicle with the parameters of a physics control; raise Refused if that is invalid."""
    _require_shape(wanted, SHAPE)
    mass, drag = wanted[MASS_AT], wanted[DRAG_AT]
    wheels = wanted[WHEELS_AT]
    if mass <= 0 or drag < 0 or not wheels or min(wheel[at] for wheel in wheels for at in (FRICTION_AT, BRAKE_AT)) < 0:
        raise Refused("Mass must be positive, drag, friction and brake torque not negative, and wheels there.", got=wanted)
    friction, brake = (sum(wheel[at] for wheel in wheels) / len(wheels) for at in (FRICTION_AT, BRAKE_AT))
    return replace(
        vehicle,
        mass=mass,
        drag=vehicle.drag * drag / DRAG * vehicle.mass / mass,
        grip=vehicle.grip * friction / FRICTION,
        max_steer=max(min(max(wheel[STEER_AT] for wheel in wheels), 89.0), 0.1),
        braking=vehicle.braking * brake / BRAKE * vehicle.mass / mass,
        traction=vehicle.traction * vehicle.mass / mass,
    )


def _others(control: Any) -> list[object]:
    """Return the fields of a physics control that have no effect here, rounded like the client's floats."""
    used = FRICTION_AT, STEER_AT, BRAKE_AT
    wheels = [[value for at, value in enumerate(wheel[:9]) if at not in used] for wheel in control[WHEELS_AT]]
    return [_rounded(part) for part in (*control[:MASS_AT], *control[DRAG_AT + 1 : WHEELS_AT], control[16], wheels)]


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 4) if isinstance(value, float) else value


def _radius(control: Any) -> float:
    """Return the radius [m] of the first wheel of a physics control."""
    return max(float(control[WHEELS_AT][0][3]), 1.0) / 100
