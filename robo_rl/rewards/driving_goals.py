"""Contrasting language goals with the state of a car: the reward of VLM-RL (Huang et al. 2024, arXiv:2412.15544).

    r = s * max(1 - |offset| / 3 m, 0) * max(1 - |angle| / 90 degrees, 0), and s alone where s < 0
    s = (c v_top - |v - c v_top|) / v_top

c is the safety of `ContrastingLanguageGoals`. Speed, offset and angle are read from what a driving environment observes:
`velocity` [m/s] forward and to the right, `route`, points ahead on the middle of the lane [m], both in the car's frame.

Differs from VLM-RL: there s = 1 - |v - c v_top| / v_top, which pays 1 - c for standing in every step until the episode is cut.
Here that is taken off, so that standing pays nothing, a metre that is driven no faster than looks safe pays the same at any
speed, arriving loses nothing, and more than twice the speed that looks safe costs something wherever the car is in its lane.
No factor for steadiness, which needs a memory of offsets that a single step has not; no reward of -10 at the end of an
episode, so that collisions are told by the pictures alone; the interval of c is found, not given (see `clg`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.clg import ContrastingLanguageGoals, Numbers, synthesis
from robo_rl.types import Array

SIDEWAYS, TURNED = 3.0, math.pi / 2
"""[m] and [rad] at which nothing is paid."""


@dataclass(frozen=True, kw_only=True)
class DrivingGoals(ContrastingLanguageGoals):
    """Speed, as fast as looks safe, times keeping to the lane (VLM-RL's hierarchical synthesis)."""

    top_speed: float = 8.0
    """[m/s] where all is safe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self,
            {"top_speed": (self.top_speed > 0, "above 0 [m/s]"), "mode": (self.mode == "level", "level, a reward by itself")},
        )

    @property
    def method(self) -> str:
        """Name of the method."""
        return "driving-clg"

    def states(self, observations: Mapping[str, Array]) -> Numbers:
        """Returns speed [m/s], offset [m] and angle [rad] (N, 3) of observations; raises InvalidSetting."""
        if missing := [name for name in ("velocity", "route") if name not in observations]:
            raise InvalidSetting(
                "Driving goals need a car.", got=f"no {', '.join(missing)}", allowed="observations of a driving environment"
            )
        route = np.asarray(observations["route"], np.float64)
        (forward, aside), (dx, dy) = route[:, 0].T, (route[:, 1] - route[:, 0]).T
        length = np.maximum(np.hypot(dx, dy), 1e-6)
        offset, angle = (forward * dy - aside * dx) / length, np.arctan2(dy, dx)
        return np.stack([np.asarray(observations["velocity"], np.float64)[:, 0], offset, angle], axis=1)

    def combined(self, values: Numbers, states: Numbers) -> npt.NDArray[np.float32]:
        """Returns rewards (N,) for safeties (N,) and states (N, 3)."""
        speed, offset, angle = np.asarray(states, np.float64).T
        centring, heading = 1 - np.abs(offset) / SIDEWAYS, 1 - np.abs(angle) / TURNED
        paid = synthesis(values, speed, self.top_speed) - synthesis(values, np.zeros_like(speed), self.top_speed)
        keeping = np.maximum(centring, 0) * np.maximum(heading, 0)
        return np.where(paid > 0, paid * keeping, paid).astype(np.float32)
