"""The dynamic bicycle: lateral velocity and yaw rate follow from the forces of two tyres.

After Rajamani, Vehicle Dynamics and Control, 2nd edition, section 2.3, with tyres that saturate, and the kinematic model below
walking pace, where slip angles say nothing.
"""

from __future__ import annotations

import numpy as np

from robo_sims.carla.standin.physics import kinematic
from robo_sims.carla.standin.physics.state import GRAVITY, Controls, Floats, Parameters, State, accelerated, steered

LONGEST = 0.005
"""[s] of a step of integration; the linear tyre is stiff."""
SLOW, FAST = 2.0, 4.0
"""[m/s] below the one the kinematic model, above the other the dynamic one, between them a mixture."""
INERTIA = 1.0
"""Moment of inertia over mass x front x rear: near 1 for cars."""


def step(state: State, controls: Controls, parameters: Parameters, dt: float) -> None:
    """Moves all vehicles by one step, in place."""
    if not state.forward.any() and not controls.throttle.any():
        kinematic.step(state, controls, parameters, dt)
        return
    count = max(int(np.ceil(dt / LONGEST - 1e-9)), 1)
    for _ in range(count):
        _short_step(state, controls, parameters, dt / count)


def _short_step(state: State, controls: Controls, parameters: Parameters, dt: float) -> None:
    state.wheel[:] = steered(state.wheel, controls, parameters, dt)
    forward = accelerated(state.forward, controls, parameters, dt)
    sideways, turning = _by_tyres(state, forward, parameters, dt)
    tangent = np.tan(state.wheel)
    share = np.clip((np.abs(forward) - SLOW) / (FAST - SLOW), 0.0, 1.0)
    state.sideways[:] = share * sideways + (1 - share) * forward * tangent * parameters.rear / parameters.wheelbase
    state.turning[:] = share * turning + (1 - share) * forward * tangent / parameters.wheelbase
    state.forward[:] = forward
    course = np.radians(state.yaw) + 0.5 * dt * state.turning
    cosine, sine = np.cos(course), np.sin(course)
    state.x += dt * (forward * cosine - state.sideways * sine)
    state.y += dt * (forward * sine + state.sideways * cosine)
    kinematic.turned(state, dt)


def _by_tyres(state: State, forward: Floats, p: Parameters, dt: float) -> tuple[Floats, Floats]:
    """Returns lateral velocity and yaw rate after a step, per unit of mass (Rajamani, equations 2.31 and 2.32)."""
    rolling = np.maximum(np.abs(forward), SLOW)
    signed = np.copysign(1.0, forward)
    angle_front = state.wheel * signed - np.arctan((state.sideways + p.front * state.turning) / rolling)
    angle_rear = -np.arctan((state.sideways - p.rear * state.turning) / rolling)
    # Differs from Rajamani: the force bends towards the grip instead of growing without end.
    grip = p.grip / GRAVITY
    front = grip * np.tanh(p.cornering * angle_front / grip) * GRAVITY * p.rear / p.wheelbase
    rear = grip * np.tanh(p.cornering * angle_rear / grip) * GRAVITY * p.front / p.wheelbase
    sideways = state.sideways + dt * (front * np.cos(state.wheel) + rear - forward * state.turning)
    turning = state.turning + dt * (p.front * front * np.cos(state.wheel) - p.rear * rear) / (INERTIA * p.front * p.rear)
    return sideways, turning
