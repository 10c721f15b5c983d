"""RARL: training against an adversary that is as rational as can be from the start, with SAC for both.

Pinto, Davidson, Sukthankar and Gupta 2017, "Robust Adversarial Reinforcement Learning", arXiv:1703.02702. With
`schedule: force` the largest force grows along the training; with `schedule: temperature` the adversary's temperature falls,
both linearly: the baselines of Reddi et al. 2024, arXiv:2311.01642.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from robo_papers.qarl.adversarial import AdversarialSettings, Curriculum
from robo_rl.errors import require_allowed
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class RARLConfig(AdversarialSettings):
    """Settings of RARL."""

    schedule: Literal["none", "force", "temperature"] = "none"
    """Quantity that makes the adversary stronger along the training, linearly."""
    ramp: float = 0.6
    """Share of the training after which it is at its strongest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"ramp": (0.0 < self.ramp <= 1.0, "above 0, at most 1")})

    @override
    def curriculum(self) -> LinearCurriculum:
        return LinearCurriculum(self)


class LinearCurriculum(Curriculum):
    """One temperature for all episodes, or force or temperature along a line."""

    def __init__(self, config: RARLConfig) -> None:
        self._config, self._share = config, 0.0

    @property
    @override
    def force(self) -> float:
        """Share of the largest force."""
        return self._share if self._config.schedule == "force" else 1.0

    @property
    @override
    def mean(self) -> float:
        """The temperature of the next episode."""
        config = self._config
        share = self._share if config.schedule == "temperature" else 1.0
        return config.first_temperature + share * (config.last_temperature - config.first_temperature)

    @override
    def draw(self, generator: np.random.Generator) -> float:
        """Return the temperature."""
        return self.mean

    @override
    def finish(self, alpha: float, episode_return: float, progress: float) -> Metrics:
        """Follow the line."""
        self._share = min(1.0, progress / self._config.ramp)
        return {"adversary/temperature": alpha, "adversary/force": self.force}

    @override
    def state_dict(self) -> StateDict:
        return {"share": self._share}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._share = float(state["share"])
