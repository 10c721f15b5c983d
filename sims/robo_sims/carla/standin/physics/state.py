"""State, controls and parameters of all driven vehicles, one entry a vehicle in each array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.physics.parameters import Vehicle

Floats = npt.NDArray[np.float64]
GRAVITY = 9.81


class Parameters:
    """Arrays of the numbers of `Vehicle`; angles in radians."""

    def __init__(self, vehicles: Sequence[Vehicle]) -> None:
        numbers = [field.name for field in fields(Vehicle) if field.type in ("float", "int")]
        arrays = {name: np.array([getattr(vehicle, name) for vehicle in vehicles], float) for name in numbers}
        self.wheelbase: Floats = arrays["wheelbase"]
        self.front: Floats = arrays["wheelbase"] * arrays["front_share"]
        self.rear: Floats = arrays["wheelbase"] - self.front
        self.mass: Floats = arrays["mass"]
        self.power: Floats = arrays["power"] / arrays["mass"]
        """[W/kg]"""
        self.traction: Floats = arrays["traction"]
        self.braking: Floats = arrays["braking"]
        self.drag: Floats = arrays["drag"]
        self.rolling: Floats = arrays["rolling"]
        self.engine_braking: Floats = arrays["engine_braking"]
        self.max_steer: Floats = np.radians(arrays["max_steer"])
        self.steering_rate: Floats = np.radians(arrays["steering_rate"])
        self.grip: Floats = arrays["grip"] * GRAVITY
        """[m/s2]"""
        self.cornering: Floats = arrays["cornering"]


class State:
    """Where vehicles are and how they move, in their own frames: x forward, y to the right, turning to the right positive."""

    NAMES = ("x", "y", "yaw", "forward", "sideways", "turning", "wheel")

    def __init__(self, count: int) -> None:
        self.x, self.y = np.zeros(count), np.zeros(count)
        self.yaw = np.zeros(count)
        """[degree], as users give it, so that what does not turn keeps it to the bit"""
        self.forward, self.sideways = np.zeros(count), np.zeros(count)
        """[m/s] of the centre"""
        self.turning, self.wheel = np.zeros(count), np.zeros(count)
        """[rad/s]; [rad] of the front wheels"""

    def resized(self, kept: Sequence[int], count: int) -> State:
        """Returns a state of another size that begins with the entries that are kept."""
        made = State(count)
        for name in self.NAMES:
            getattr(made, name)[: len(kept)] = getattr(self, name)[list(kept)]
        return made


class Controls:
    """What drivers ask for."""

    NAMES = ("throttle", "steer", "brake", "hand_brake", "direction")

    def __init__(self, count: int) -> None:
        self.throttle, self.steer, self.brake = np.zeros(count), np.zeros(count), np.zeros(count)
        self.hand_brake, self.direction = np.zeros(count), np.ones(count)
        """0 or 1; 1 forwards, -1 backwards"""

    def resized(self, kept: Sequence[int], count: int) -> Controls:
        """Returns controls of another size that begin with the entries that are kept."""
        made = Controls(count)
        for name in self.NAMES:
            getattr(made, name)[: len(kept)] = getattr(self, name)[list(kept)]
        return made


def pushed(speed: Floats, controls: Controls, parameters: Parameters) -> Floats:
    """Returns the acceleration [m/s2] that the motor gives: even traction up to the speed where power is the limit."""
    limit = parameters.power / np.maximum(np.abs(speed), 1.0)
    return controls.direction * controls.throttle * np.minimum(parameters.traction, limit)


def resisted(speed: Floats, controls: Controls, parameters: Parameters) -> Floats:
    """Returns the deceleration [m/s2], never negative, of brakes, air, rolling and the idle motor."""
    brakes = np.maximum(controls.brake, controls.hand_brake) * parameters.braking
    idle = parameters.engine_braking * (1.0 - controls.throttle)
    return brakes + idle + parameters.rolling + parameters.drag * speed * speed


def accelerated(speed: Floats, controls: Controls, parameters: Parameters, dt: float) -> Floats:
    """Returns the speed after a step; what resists never turns a vehicle round."""
    driven = speed + dt * pushed(speed, controls, parameters)
    lost = dt * resisted(speed, controls, parameters)
    return np.copysign(np.maximum(np.abs(driven) - lost, 0.0), driven)


def steered(wheel: Floats, controls: Controls, parameters: Parameters, dt: float) -> Floats:
    """Returns the angle of the front wheels after a step."""
    most = parameters.steering_rate * dt
    return wheel + np.minimum(np.maximum(controls.steer * parameters.max_steer - wheel, -most), most)
