"""The kinematic bicycle about the centre of mass: wheels do not slip (Kong et al., IV 2015, equations 2a to 2e)."""

from __future__ import annotations

import math
from typing import Any

from carla_standin.physics.state import Functions, accelerated, steered

DEGREE = math.pi / 180.0


def step(state: Any, controls: Any, parameters: Any, dt: float) -> None:
    """Move all vehicles of a State, or One, by one step, in place."""
    f: Functions = state.functions
    state.wheel = steered(state.wheel, controls, parameters, dt, f)
    speed = f.copysign(f.hypot(state.forward, state.sideways), state.forward)
    speed = accelerated(speed, controls, parameters, dt, f)
    tangent = f.tan(state.wheel)
    slip = f.atan(tangent * (parameters.rear / parameters.wheelbase))  # (2e)
    turning = speed * f.cos(slip) * tangent / parameters.wheelbase  # (2c) with l_r / sin(slip) written out
    # Differs from Kong: the grip of the tyres bounds the lateral acceleration, so that the path widens at high speed.
    most = parameters.grip / f.high(abs(speed), 0.1)
    held = f.low(f.high(turning, -most), most)
    slip = f.where(held == turning, slip, 0.0)
    state.forward, state.sideways, state.turning = speed * f.cos(slip), speed * f.sin(slip), held
    course = state.yaw * DEGREE + 0.5 * dt * held + slip
    state.x += dt * speed * f.cos(course)  # (2a)
    state.y += dt * speed * f.sin(course)  # (2b)
    turned(state, dt)


def turned(state: Any, dt: float) -> None:
    """Turn all vehicles by their turn rate for `dt` [s]; a yaw of 180 degrees stays 180 without a turn."""
    yaw = state.yaw + state.turning * dt / DEGREE
    state.yaw = state.functions.where(abs(yaw) > 180.0, (yaw + 180.0) % 360.0 - 180.0, yaw)
