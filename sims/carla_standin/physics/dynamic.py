"""The dynamic bicycle: lateral velocity and yaw rate follow from the forces of two tyres.

After Rajamani, Vehicle Dynamics and Control, 2nd edition, section 2.3, with tyres that saturate, and the kinematic model below
walking pace, because slip angles are meaningless there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from carla_standin.physics import kinematic
from carla_standin.physics.kinematic import DEGREE
from carla_standin.physics.state import GRAVITY, Functions, accelerated, steered

LONGEST = 0.005
"""Longest step [s] of the numerical integration; longer ones would be unstable, because tyres are stiff."""
SLOW, FAST = 2.0, 4.0
"""[m/s] Kinematic model below the first, dynamic one above the second, a mixture between them."""
NO_GRIP = 1e-9
"""Coefficient of friction of tyres without contact; not 0, because slip is divided by it."""
INERTIA = 1.0
"""Moment of inertia divided by mass x front axle distance x rear axle distance; near 1 for cars."""


def step(state: Any, controls: Any, parameters: Any, dt: float) -> None:
    """Move all vehicles of a State, or One, by one step, in place."""
    if not np.any(state.forward) and not np.any(controls.throttle):
        kinematic.step(state, controls, parameters, dt)
        return
    count = max(math.ceil(dt / LONGEST - 1e-9), 1)
    for _ in range(count):
        _short_step(state, controls, parameters, dt / count)


def _short_step(state: Any, controls: Any, parameters: Any, dt: float) -> None:
    f: Functions = state.functions
    state.wheel = steered(state.wheel, controls, parameters, dt, f)
    forward = accelerated(state.forward, controls, parameters, dt, f)
    sideways, turning = _by_tyres(state, forward, parameters, dt, f)
    tangent = f.tan(state.wheel)
    share = f.low(f.high((abs(forward) - SLOW) / (FAST - SLOW), 0.0), 1.0)
    state.sideways = share * sideways + (1 - share) * forward * tangent * parameters.rear / parameters.wheelbase
    state.turning = share * turning + (1 - share) * forward * tangent / parameters.wheelbase
    state.forward = forward
    course = state.yaw * DEGREE + 0.5 * dt * state.turning
    cosine, sine = f.cos(course), f.sin(course)
    state.x += dt * (forward * cosine - state.sideways * sine)
    state.y += dt * (forward * sine + state.sideways * cosine)
    kinematic.turned(state, dt)


def _by_tyres(state: Any, forward: Any, p: Any, dt: float, f: Functions) -> tuple[Any, Any]:
    """Return lateral velocity and yaw rate after a step, per unit of mass (Rajamani, equations 2.31 and 2.32)."""
    rolling = f.high(abs(forward), SLOW)
    signed = f.copysign(1.0, forward)
    angle_front = state.wheel * signed - f.atan((state.sideways + p.front * state.turning) / rolling)
    angle_rear = -f.atan((state.sideways - p.rear * state.turning) / rolling)
    # Differs from Rajamani: the force bends towards the grip instead of growing without end.
    grip = f.high(p.grip / GRAVITY, NO_GRIP)
    front = grip * f.tanh(p.cornering * angle_front / grip) * GRAVITY * p.rear / p.wheelbase
    rear = grip * f.tanh(p.cornering * angle_rear / grip) * GRAVITY * p.front / p.wheelbase
    sideways = state.sideways + dt * (front * f.cos(state.wheel) + rear - forward * state.turning)
    turning = state.turning + dt * (p.front * front * f.cos(state.wheel) - p.rear * rear) / (INERTIA * p.front * p.rear)
    return sideways, turning
