"""Calls that move vehicles without pedals: velocities, impulses, forces, Ackermann control, physics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from carla_standin.actors import Actor
from carla_standin.calls.physics import Physics
from carla_standin.host import Host
from carla_standin.log_once import log_once
from carla_standin.physics.ackermann import GAINS, Ackermann
from carla_standin.poses import numbers
from carla_standin.responses import valued, void
from carla_standin.vehicles import model_of
from carla_standin.world import World

STRONGEST = 1e15
"""Largest absolute value of a component of an impulse, force or torque that a client may ask for, in the call's own unit."""
SQUARE_CENTIMETRES = 1e4
"""Square centimetres in a square metre: a real server takes angular impulses and torques in degrees and centimetres."""


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call about motion -> function that carries it out."""
    about, physics = Motion(host), Physics(host)
    return {
        **valued(
            get_ackermann_controller_settings=about.gains,
            get_physics_control=physics.control,
            get_telemetry_data=physics.telemetry,
            get_wheel_steer_angle=physics.wheel_angle,
        ),
        **void(
            apply_ackermann_control_to_vehicle=about.ackermann,
            apply_ackermann_controller_settings=about.set_gains,
            set_actor_target_velocity=about.set_velocity,
            set_actor_target_angular_velocity=about.set_angular_velocity,
            enable_actor_constant_velocity=about.hold_velocity,
            disable_actor_constant_velocity=about.release_velocity,
            add_actor_impulse=about.impulse,
            add_actor_impulse_at_location=about.impulse_at,
            add_actor_force=about.force,
            add_actor_force_at_location=about.force_at,
            add_actor_angular_impulse=about.angular_impulse,
            add_actor_torque=about.torque,
            set_actor_simulate_physics=about.set_physics,
            set_actor_enable_gravity=about.set_gravity,
            set_actor_collisions=about.set_collisions,
            apply_physics_control=physics.apply,
        ),
    }


class Motion:
    """Remote calls that push, turn and move actors. In each of them `number` is the actor's id."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @property
    def world(self) -> World:
        """World of the current episode."""
        return self.host.world

    def set_velocity(self, number: int, wanted: object) -> None:
        """Give an actor a velocity [m/s] in the world's frame."""
        actor = self.world.actor(number)
        x, y, _ = numbers(wanted, 3, "A velocity")
        if actor.type_id.startswith(("walker.", "static.")):
            log_once(
                f"set_target_velocity moves vehicles only: {actor.type_id} stays as it is; use WalkerControl or set_transform."
            )
            return
        group = self.world.group_of(actor)
        if actor.has_physics:
            group.launch(actor, self.world.bodies, x, y)

    def set_angular_velocity(self, number: int, wanted: object) -> None:
        """Give a vehicle a yaw rate [degree/s], which its tyres slow down."""
        self._spin(self.world.actor(number), wanted, "An angular velocity", 1.0, is_added=False)

    def hold_velocity(self, number: int, wanted: object) -> None:
        """Keep a vehicle at a constant velocity (x, y) [m/s] in its own frame, whatever its pedals."""
        actor = self.world.actor(number)
        forward, right, up = numbers(wanted, 3, "A velocity")
        if up:
            log_once("enable_constant_velocity holds velocities along the ground only: its z is ignored.")
        self.world.group_of(actor).override(actor).constant = forward, right

    def release_velocity(self, number: int) -> None:
        """Let the pedals drive the vehicle again, after `hold_velocity`."""
        actor = self.world.actor(number)
        self.world.group_of(actor).override(actor).constant = None

    def impulse(self, number: int, wanted: object) -> None:
        """Apply an impulse [N s] (x, y, z), in the world's frame, to a vehicle's centre of mass."""
        self._push(number, numbers(wanted, 3, "An impulse", STRONGEST), 1.0)

    def force(self, number: int, wanted: object) -> None:
        """Apply a force to a vehicle's centre of mass for one step; unit N, (x, y, z) in the world's frame."""
        self._push(number, numbers(wanted, 3, "A force", STRONGEST), self.world.step_seconds)

    def impulse_at(self, number: int, wanted: object, location: object) -> None:
        """Apply an impulse [N s] to a vehicle at a location in the world; off the centre of mass it also turns the vehicle."""
        self._push_at(number, numbers(wanted, 3, "An impulse", STRONGEST), location, 1.0)

    def force_at(self, number: int, wanted: object, location: object) -> None:
        """Push a vehicle at a location in the world by a force [N] for one step."""
        self._push_at(number, numbers(wanted, 3, "A force", STRONGEST), location, self.world.step_seconds)

    def angular_impulse(self, number: int, wanted: object) -> None:
        """Apply an angular impulse about the vertical axis to a vehicle; its unit is CARLA's, kg cm2 degree/s."""
        actor = self.world.actor(number)
        self._spin(actor, wanted, "An angular impulse", 1.0 / (SQUARE_CENTIMETRES * self._inertia(actor)))

    def torque(self, number: int, wanted: object) -> None:
        """Apply a torque about the vertical axis to a vehicle for one step; its unit is CARLA's, kg cm2 degree/s2."""
        actor = self.world.actor(number)
        share = self.world.step_seconds / (SQUARE_CENTIMETRES * self._inertia(actor))
        self._spin(actor, wanted, "A torque", share)

    def _push(self, number: int, vector: list[float], seconds: float) -> None:
        actor = self.world.actor(number)
        if not actor.type_id.startswith("vehicle."):
            log_once(f"Impulses and forces move vehicles only: {actor.type_id} stays as it is.")
            return
        mass = model_of(actor).mass
        self.world.push(actor, [seconds * part / mass for part in vector])

    def _push_at(self, number: int, vector: list[float], location: object, seconds: float) -> None:
        self._push(number, vector, seconds)
        actor = self.world.actor(number)
        x, y, _ = numbers(location, 3, "A location")
        if actor.type_id.startswith("vehicle."):
            own = self.world.bodies.motion[actor.row]
            moment = (x - own[0]) * vector[1] - (y - own[1]) * vector[0]
            self._add_spin(actor, seconds * moment / self._inertia(actor))

    def _spin(self, actor: Actor, wanted: object, what: str, share: float, *, is_added: bool = True) -> None:
        roll, pitch, yaw = numbers(wanted, 3, what, STRONGEST)
        if roll or pitch:
            log_once(f"{what} turns vehicles about the vertical only: x and y are ignored.")
        self._add_spin(actor, math.radians(share * yaw), is_added)

    def _add_spin(self, actor: Actor, rate: float, is_added: bool = True) -> None:
        override = self.world.group_of(actor).override(actor)
        if actor.has_physics:
            override.spin = rate + (override.spin if is_added else 0.0)

    def _inertia(self, actor: Actor) -> float:
        """Return the moment of inertia [kg m2] about the vertical."""
        self.world.group_of(actor)
        vehicle = model_of(actor)
        return vehicle.mass * vehicle.front_share * (1 - vehicle.front_share) * vehicle.wheelbase**2

    def set_physics(self, number: int, enabled: object) -> None:
        """Freeze a vehicle, or let it go; nothing if it is gone.

        A Traffic Manager calls it in a thread of the client, where an error would end the process.
        """
        actor = self.world.bodies.by_id.get(number)
        if actor is None:
            log_once(f"set_simulate_physics: actor {number} is not there.")
            return
        if enabled and actor.type_id.startswith("static."):
            log_once("Props stay where they are: set_simulate_physics(True) changes nothing for them.")
        self.world.set_physics(actor, bool(enabled))

    def set_gravity(self, number: int, enabled: object) -> None:
        """Let gravity act on an actor, or not."""
        self.world.set_gravity(self.world.actor(number), bool(enabled))

    def set_collisions(self, number: int, enabled: object) -> None:
        """Switch an actor's collisions with others on or off."""
        self.world.set_collisions(self.world.actor(number), bool(enabled))

    def ackermann(self, number: int, wanted: object) -> None:
        """Set the target of an Ackermann controller: [steer, steer_speed, speed, acceleration, jerk]."""
        actor = self.world.actor(number)
        self.world.group_of(actor).follow(actor, Ackermann(*numbers(wanted, 5, "An Ackermann control")))

    def gains(self, number: int) -> list[float]:
        """Return the six gains of a vehicle's Ackermann controller."""
        self.world.group_of(self.world.actor(number))
        return self.world.gains.get(number, GAINS)

    def set_gains(self, number: int, wanted: Any) -> None:
        """Store the six gains, which have no effect."""
        self.world.group_of(self.world.actor(number))
        self.world.gains[number] = numbers(wanted, 6, "Ackermann controller settings")
        log_once(
            "Ackermann controller settings are kept and read back, and change nothing:"
            " the controller works the pedals by the vehicle's own model."
        )
