"""Cal-QL: Nakamoto et al. 2023, "Calibrated Offline RL Pre-Training for Efficient Online Fine-Tuning" (arXiv 2303.05479)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.cql import CQL, CQLSettings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.extras import ReturnsToGo
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class CalQLConfig(CQLSettings):
    """Settings of Cal-QL, the same as those of CQL."""

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(ReturnsToGo(self.discount),))

    def build(self, spec: EnvironmentSpec, seed: int) -> CQL:
        """Return a fresh learner."""
        return CQL(spec, self, seed, lambda data: recorded_returns(data, self.reward_scale))


def recorded_returns(data: TensorBatch, reward_scale: float) -> Tensor:
    """Return the discounted return-to-go of each recorded step (B,); no value is pushed below it (eq. 5.1).

    Minus infinity for steps of an episode that is still running, as online: its return is unknown.
    """
    returns = reward_scale * data.extras["returns_to_go"]
    return torch.nan_to_num(returns, nan=-torch.inf, neginf=-torch.inf)
