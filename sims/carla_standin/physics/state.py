"""State, controls and parameters of all driven vehicles, as arrays with one entry for each vehicle."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from carla_standin.physics.parameters import Vehicle

Floats = npt.NDArray[np.float64]
GRAVITY = 9.81
Function = Callable[..., Any]


@dataclass(frozen=True)
class Functions:
    """Arithmetic functions for the equations of motion, in two sets with one interface.

    For many vehicles they are NumPy's. For one vehicle they are Python's, since NumPy's calls are slow on single numbers.
    """

    sin: Function
    cos: Function
    tan: Function
    atan: Function
    tanh: Function
    hypot: Function
    copysign: Function
    low: Function
    """Return the smaller of two numbers, element by element."""
    high: Function
    where: Function


ARRAYS = Functions(
    np.sin, np.cos, np.tan, np.arctan, np.tanh, np.hypot, np.copysign, np.minimum, np.maximum, np.where
)  # fmt: skip
NUMBERS = Functions(
    math.sin, math.cos, math.tan, math.atan, math.tanh, math.hypot, math.copysign, min, max, lambda test, a, b: a if test else b
)  # fmt: skip


class One:
    """One vehicle's entries of a State, Controls or Parameters as plain numbers, with the same names."""

    functions = NUMBERS

    def __init__(self, arrays: Any, number: int = 0) -> None:
        self.__dict__ = {name: array.item(number) for name, array in vars(arrays).items()}

    def back(self, arrays: Any, number: int = 0) -> None:
        """Copy the numbers of this vehicle back into entry `number` of the arrays of all vehicles."""
        for name, value in self.__dict__.items():
            getattr(arrays, name)[number] = value

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...


class Parameters:
    """Parameters of many vehicles as arrays, with the names of Vehicle's fields; angles in radians."""

    def __init__(self, vehicles: Sequence[Vehicle]) -> None:
        numbers = [field.name for field in fields(Vehicle) if field.type in ("float", "int")]
        arrays = {name: np.array([getattr(vehicle, name) for vehicle in vehicles], float) for name in numbers}
        self.wheelbase: Floats = arrays["wheelbase"]
        self.front: Floats = arrays["wheelbase"] * arrays["front_share"]
        self.rear: Floats = arrays["wheelbase"] - self.front
        self.mass: Floats = arrays["mass"]
        self.power: Floats = arrays["power"] / arrays["mass"]
        """Power per mass [W/kg]."""
        self.traction: Floats = arrays["traction"]
        self.braking: Floats = arrays["braking"]
        self.drag: Floats = arrays["drag"]
        self.rolling: Floats = arrays["rolling"]
        self.engine_braking: Floats = arrays["engine_braking"]
        self.max_steer: Floats = np.radians(arrays["max_steer"])
        self.steering_rate: Floats = np.radians(arrays["steering_rate"])
        self.grip: Floats = arrays["grip"] * GRAVITY
        """Largest acceleration [m/s2] that the tyres transmit."""
        self.cornering: Floats = arrays["cornering"]


class _Resizable(ABC):
    """Base of classes whose attributes are arrays of one length."""

    @abstractmethod
    def __init__(self, count: int) -> None: ...

    def resized(self, kept: Sequence[int], count: int) -> Self:
        """Return arrays of length `count` that start with the kept entries."""
        made = type(self)(count)
        for name, array in vars(made).items():
            array[: len(kept)] = getattr(self, name)[list(kept)]
        return made


class State(_Resizable):
    """Poses and velocities of many vehicles, one array entry each.

    Velocities are in the vehicle's own frame: x forward, y to the right, turning to the right positive.
    """

    functions = ARRAYS

    def __init__(self, count: int) -> None:
        self.x, self.y = np.zeros(count), np.zeros(count)
        self.yaw = np.zeros(count)
        """[degree], the users' unit, so that it stays exact without a turn"""
        self.forward, self.sideways = np.zeros(count), np.zeros(count)
        """[m/s] velocity of the centre, forwards and to the right"""
        self.turning, self.wheel = np.zeros(count), np.zeros(count)
        """[rad/s] yaw rate; [rad] angle of the front wheels"""


class Controls(_Resizable):
    """Throttle, steering, brakes and direction of N vehicles, as their drivers command them."""

    def __init__(self, count: int) -> None:
        self.throttle, self.steer, self.brake = np.zeros(count), np.zeros(count), np.zeros(count)
        self.hand_brake, self.direction = np.zeros(count), np.ones(count)
        """hand brake, 0 or 1; direction of travel, 1 forwards, -1 backwards"""


def pushed(speed: Any, controls: Any, parameters: Any, f: Functions) -> Any:
    """Return the acceleration [m/s2] of the motor: constant traction up to the speed at which power limits it."""
    limit = parameters.power / f.high(abs(speed), 1.0)
    return controls.direction * controls.throttle * f.low(f.low(parameters.traction, limit), parameters.grip)


def resisted(speed: Any, controls: Any, parameters: Any, f: Functions) -> Any:
    """Return the deceleration [m/s2], 0 or more, of each vehicle by brakes, air, rolling, and the motor without throttle."""
    brakes = f.high(controls.brake, controls.hand_brake) * parameters.braking
    idle = parameters.engine_braking * (1.0 - controls.throttle)
    # Tyres without grip neither push nor brake: a vehicle with friction 0 rolls on.
    return f.low(brakes + idle + parameters.rolling, parameters.grip) + parameters.drag * speed * speed


def accelerated(speed: Any, controls: Any, parameters: Any, dt: float, f: Functions) -> Any:
    """Return the forward speed [m/s] after a step of `dt` [s]; resistance never reverses it."""
    driven = speed + dt * pushed(speed, controls, parameters, f)
    lost = dt * resisted(speed, controls, parameters, f)
    return f.copysign(f.high(abs(driven) - lost, 0.0), driven)


def steered(wheel: Any, controls: Any, parameters: Any, dt: float, f: Functions) -> Any:
    """Return the angle [rad] of the front wheels after a step of `dt` [s]."""
    most = parameters.steering_rate * dt
    return wheel + f.low(f.high(controls.steer * parameters.max_steer - wheel, -most), most)
