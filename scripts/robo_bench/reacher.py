"""An expert of gymnasium/Reacher-v5 that is written down."""

from __future__ import annotations

from typing import Any

import numpy as np

from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array


class ReacherExpert:
    """Scripted expert: transposed Jacobian towards the target, with noise of deviation `noise` on each torque."""

    def __init__(self, spec: EnvironmentSpec, noise: float, seed: int) -> None:
        self.environment_spec, self._noise, self._random = spec, noise, np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: the expert has no memory."""

    def gain(self, observation: Any) -> float:
        """Return the factor of the motors."""
        del observation
        return 1.0

    def act(self, observation: Any, *, deterministic: bool = False) -> Array:
        """Return torques (2,)."""
        del deterministic
        (cos_0, cos_1), (sin_0, sin_1) = observation["joint_cosine"], observation["joint_sine"]
        both = np.array([cos_0 * cos_1 - sin_0 * sin_1, sin_0 * cos_1 + cos_0 * sin_1])
        first, second = 0.1 * np.array([-sin_0, cos_0]), 0.11 * np.array([-both[1], both[0]])
        away = observation["target_to_fingertip"]
        pull = np.array([(first + second) @ -away, second @ -away])
        wanted = (20.0 * pull - 0.1 * observation["joint_velocity"]) / self.gain(observation)
        torques: Array = np.clip(wanted + self._noise * self._random.normal(size=2), -1.0, 1.0).astype(np.float32)
        return torques
