"""Overrides of a vehicle's motion model: frozen, in free fall, at a constant velocity, sliding, or spinning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from carla_standin.actors import Actor
from carla_standin.physics.kinematic import DEGREE, turned

LEAST = 1e-3
"""Speed of a slide [m/s], and of a spin [rad/s], up to which they count as none."""


@dataclass
class Override:
    """Motion of one vehicle that its physical model does not produce: a constant velocity, sideways sliding, spinning.

    Default: none.
    """

    constant: tuple[float, float] | None = None
    """Constant velocity [m/s], forward and to the right in the vehicle's own frame, independent of its pedals; None for
    none."""
    slide: float = 0.0
    """Sideways velocity [m/s] to the right, which the grip of the tyres reduces with time."""
    spin: float = 0.0
    """Additional yaw rate [rad/s] to the right, which the grip of the tyres reduces with time."""

    def is_needed(self, actor: Actor) -> bool:
        """Return True if the vehicle's next step differs from that of its model."""
        return (
            not actor.has_physics or actor.is_aloft or self.constant is not None or max(abs(self.slide), abs(self.spin)) > LEAST
        )

    def apply(self, actor: Actor, before: Any, after: Any, parameters: Any, dt: float) -> None:
        """Correct the state `after` a step of the model by the departures from the state `before`; all are of class One."""
        if not actor.has_physics:
            self.slide = self.spin = 0.0
            _keep(before, after, 0.0, 0.0)
        elif actor.is_aloft:  # no tyre touches the ground: it keeps its velocity
            _keep(before, after, before.forward, before.sideways)
            self._move(after, before.forward, before.sideways + self.slide, dt)
        elif self.constant is not None:
            turning = after.turning
            _keep(before, after, *self.constant)
            after.wheel, after.turning = before.wheel, turning
            self._move(after, *self.constant, dt)
        else:
            grip = parameters.grip if actor.has_gravity else 0.0
            self._move(after, 0.0, self.slide, dt)
            self.slide = _towards_zero(self.slide, grip * dt)
            self.spin = _towards_zero(self.spin, grip * dt / (0.5 * parameters.wheelbase))

    def _move(self, state: Any, forward: float, sideways: float, dt: float) -> None:
        course = state.yaw * DEGREE + 0.5 * dt * (state.turning + self.spin)
        state.x += dt * (forward * math.cos(course) - sideways * math.sin(course))
        state.y += dt * (forward * math.sin(course) + sideways * math.cos(course))
        own, state.turning = state.turning, self.spin + (state.turning if self.constant is not None else 0.0)
        turned(state, dt)
        state.turning = own


def _keep(before: Any, after: Any, forward: float, sideways: float) -> None:
    for name in ("x", "y", "yaw", "wheel"):
        setattr(after, name, getattr(before, name))
    after.forward, after.sideways, after.turning = forward, sideways, 0.0


def _towards_zero(value: float, most: float) -> float:
    return math.copysign(max(abs(value) - most, 0.0), value)
