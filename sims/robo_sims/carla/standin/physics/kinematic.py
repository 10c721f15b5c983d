"""The kinematic bicycle about the centre of mass: wheels roll where they point (Kong et al., IV 2015, equations 2a to 2e)."""

from __future__ import annotations

import numpy as np

from robo_sims.carla.standin.physics.state import Controls, Parameters, State, accelerated, steered


def step(state: State, controls: Controls, parameters: Parameters, dt: float) -> None:
    """Moves all vehicles by one step, in place."""
    state.wheel[:] = steered(state.wheel, controls, parameters, dt)
    speed = np.copysign(np.hypot(state.forward, state.sideways), state.forward)
    speed = accelerated(speed, controls, parameters, dt)
    tangent = np.tan(state.wheel)
    slip = np.arctan(tangent * (parameters.rear / parameters.wheelbase))  # (2e)
    turning = speed * np.cos(slip) * tangent / parameters.wheelbase  # (2c) with l_r / sin(slip) written out
    # Differs from Kong: the grip of the tyres bounds the lateral acceleration, so that the path widens at high speed.
    most = parameters.grip / np.maximum(np.abs(speed), 0.1)
    held = np.minimum(np.maximum(turning, -most), most)
    slip = np.where(held == turning, slip, 0.0)
    state.forward[:], state.sideways[:], state.turning[:] = speed * np.cos(slip), speed * np.sin(slip), held
    course = np.radians(state.yaw) + 0.5 * dt * held + slip
    state.x += dt * speed * np.cos(course)  # (2a)
    state.y += dt * speed * np.sin(course)  # (2b)
    turned(state, dt)


def turned(state: State, dt: float) -> None:
    """Turns all vehicles; a yaw of 180 stays 180 where nothing turns."""
    yaw = state.yaw + np.degrees(state.turning * dt)
    state.yaw[:] = np.where(np.abs(yaw) > 180.0, (yaw + 180.0) % 360.0 - 180.0, yaw)
