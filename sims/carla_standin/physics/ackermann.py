"""Ackermann control: steering angle and speed are asked for, pedals follow from the vehicle's own model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from carla_standin.physics.state import NUMBERS, resisted

RESPONSE = 0.5
"""[s] in which an error of speed is to be gone, unless the acceleration is bounded."""
STANDING = 0.1
"""[m/s]"""
GAINS = [0.15, 0.0, 0.25, 0.01, 0.0, 0.01]
"""Of a real server's two PID controllers, speed and acceleration, before a client sets others."""


@dataclass
class Ackermann:
    """Wishes of a client for one vehicle, and what the controller remembers."""

    steer: float
    """[rad], to the right."""
    steer_speed: float
    """[rad/s], 0: as fast as the wheels turn."""
    speed: float
    """[m/s], negative: backwards."""
    acceleration: float
    """[m/s2] at most, 0: as much as the vehicle can."""
    jerk: float
    """[m/s3] at most, 0: any."""
    angle: float = 0.0
    """[rad] asked of the wheels now."""
    wanted: float = 0.0
    """[m/s2] asked of the pedals now."""

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
    """Return the value one step of at most `most` nearer to its aim; 0: there at once."""
    return min(max(aim, value - most), value + most) if most else aim
