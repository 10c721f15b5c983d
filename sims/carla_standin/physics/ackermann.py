"""Ackermann control: a target steering angle and speed; the pedals follow from the vehicle's model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from carla_standin.physics.state import NUMBERS, resisted

RESPONSE = 0.5
"""Time constant [s] with which an error of the speed is corrected, unless the command sets an acceleration."""
STANDING = 0.1
"""Speed [m/s] below which a vehicle counts as standing."""
GAINS = [0.15, 0.0, 0.25, 0.01, 0.0, 0.01]
"""Default gains of a real server's two PID controllers, of speed and acceleration."""


@dataclass
class Ackermann:
    """Target of one vehicle, and the state of its controller."""

    steer: float
    """Wanted steering angle [rad] of the front wheels, positive to the right."""
    steer_speed: float
    """Speed [rad/s] at which the wheels turn to the wanted angle; 0 for as fast as they can."""
    speed: float
    """Wanted speed [m/s]; negative for backwards."""
    acceleration: float
    """Largest acceleration [m/s2]; 0 for as much as the vehicle can."""
    jerk: float
    """Largest jerk [m/s3]; 0 for no limit."""
    angle: float = 0.0
    """Present steering angle [rad] of the front wheels; it moves towards `steer`."""
    wanted: float = 0.0
    """[m/s2] Acceleration that the pedals are to give now."""

    def apply(self, state: Any, controls: Any, parameters: Any, dt: float) -> None:
        """Set the pedals and the wheel of the next step; all are of the class One."""
        self.angle = _near(self.angle, self.steer, self.steer_speed * dt)
        controls.steer = min(max(self.angle / parameters.max_steer, -1.0), 1.0)
        forward = state.forward
        controls.direction = -1.0 if self.speed < 0 and forward <= STANDING else 1.0
        wanted = (self.speed - forward) * controls.direction / RESPONSE
        bound = abs(self.acceleration) or float("inf")
        self.wanted = _near(self.wanted, min(max(wanted, -bound), bound), abs(self.jerk) * dt)
        controls.throttle, controls.brake = pedals(self.wanted, abs(forward), controls, parameters)
        controls.hand_brake = 0.0
        if self.speed == 0.0 and abs(forward) < STANDING:
            controls.throttle, controls.brake = 0.0, 1.0


def pedals(acceleration: float, speed: float, controls: Any, parameters: Any) -> tuple[float, float]:
    """Return throttle and brake that give an acceleration [m/s2] at a speed [m/s], as far as the vehicle can."""
    controls.throttle = controls.brake = controls.hand_brake = 0.0
    needed = acceleration + resisted(speed, controls, parameters, NUMBERS)
    if needed < 0.0:
        return 0.0, min(-needed / parameters.braking, 1.0)
    most = min(parameters.traction, parameters.power / max(speed, 1.0), parameters.grip)
    return min(needed / max(most + parameters.engine_braking, 1e-9), 1.0), 0.0


def _near(value: float, aim: float, most: float) -> float:
    """Return the value moved towards its aim by at most `most`; a `most` of 0 sets no limit."""
    return min(max(aim, value - most), value + most) if most else aim
