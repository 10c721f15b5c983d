"""State, controls and parameters of all driven vehicles, one entry a vehicle in each array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from carla_standin.physics.parameters import Vehicle

Floats = npt.NDArray[np.float64]
GRAVITY = 9.81
Function = Callable[..., Any]


@dataclass(frozen=True)
class Functions:
    """Functions of the equations: NumPy's for many vehicles, Python's for one, because NumPy's calls cost most there."""

    sin: Function
    cos: Function
    tan: Function
    atan: Function
    tanh: Function
    hypot: Function
    copysign: Function
    low: Function
    """The lower of two."""
    high: Function
    where: Function


ARRAYS = Functions(
    np.sin, np.cos, np.tan, np.arctan, np.tanh, np.hypot, np.copysign, np.minimum, np.maximum, np.where
)  # fmt: skip
NUMBERS = Functions(
    math.sin, math.cos, math.tan, math.atan, math.tanh, math.hypot, math.copysign, min, max, lambda test, a, b: a if test else b
)  # fmt: skip


class One:
    """The numbers of one vehicle, by the names that they have in a State, Controls or Parameters; those of a State change."""

    functions = NUMBERS

    def __init__(self, arrays: Any, number: int = 0) -> None:
        self.__dict__ = {name: array.item(number) for name, array in vars(arrays).items()}

    def back(self, arrays: Any, number: int = 0) -> None:
        """Writes the numbers to where they came from."""
        for name, value in self.__dict__.items():
            getattr(arrays, name)[number] = value

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...


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
    """Poses and velocities of vehicles, in their own frames: x forward, y to the right, turning to the right positive."""

    NAMES = ("x", "y", "yaw", "forward", "sideways", "turning", "wheel")
    functions = ARRAYS

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
    """Commands of the drivers."""

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


def pushed(speed: Any, controls: Any, parameters: Any, f: Functions) -> Any:
    """Returns the acceleration [m/s2] that the motor gives: even traction up to the speed where power is the limit."""
    limit = parameters.power / f.high(abs(speed), 1.0)
    return controls.direction * controls.throttle * f.low(f.low(parameters.traction, limit), parameters.grip)


def resisted(speed: Any, controls: Any, parameters: Any, f: Functions) -> Any:
    """Returns the deceleration [m/s2], never negative, of brakes, air, rolling and the idle motor."""
    brakes = f.high(controls.brake, controls.hand_brake) * parameters.braking
    idle = parameters.engine_braking * (1.0 - controls.throttle)
    # Tyres without grip neither push nor brake: a vehicle whose friction a client has set to 0 rolls on.
    return f.low(brakes + idle + parameters.rolling, parameters.grip) + parameters.drag * speed * speed


def accelerated(speed: Any, controls: Any, parameters: Any, dt: float, f: Functions) -> Any:
    """Returns the speed after a step; what resists never turns a vehicle round."""
    driven = speed + dt * pushed(speed, controls, parameters, f)
    lost = dt * resisted(speed, controls, parameters, f)
    return f.copysign(f.high(abs(driven) - lost, 0.0), driven)


def steered(wheel: Any, controls: Any, parameters: Any, dt: float, f: Functions) -> Any:
    """Returns the angle of the front wheels after a step."""
    most = parameters.steering_rate * dt
    return wheel + f.low(f.high(controls.steer * parameters.max_steer - wheel, -most), most)
