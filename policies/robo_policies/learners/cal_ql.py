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
    """Settings of Cal-QL (Nakamoto et al. 2023, arXiv 2303.05479): CQL whose values are pushed down to recorded returns only.

    The fields are those of CQL.
    """

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(ReturnsToGo(self.discount),))

    def build(self, spec: EnvironmentSpec, seed: int) -> CQL:
        """Build an untrained CQL learner for a spec that pushes no value below the recorded return."""
        return CQL(spec, self, seed, lambda data: recorded_returns(data, self.reward_scale))


def recorded_returns(data: TensorBatch, reward_scale: float) -> Tensor:
    """Return the discounted, scaled return from each recorded step to the end of its episode, (B,).

    Cal-QL pushes no value below it (eq. 5.1). It is minus infinity for steps of an episode that is still running, as in online
    training, because the return is then unknown.
    """
    returns = reward_scale * data.extras["returns_to_go"]
    return torch.nan_to_num(returns, nan=-torch.inf, neginf=-torch.inf)
