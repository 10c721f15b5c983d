"""IQL: Kostrikov, Nair & Levine 2022, "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.implicit import ImplicitConfig, ImplicitLearner, squared
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class IQLConfig(ImplicitConfig):
    """Settings of IQL."""

    expectile: float = 0.7
    """Of Q(s, a) over the actions in the data, that V(s) follows: 0.5 is the mean, near 1 the maximum. 0.9 for mazes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"expectile": (0.0 < self.expectile < 1.0, "between 0 and 1, both excluded")})

    def build(self, spec: EnvironmentSpec, seed: int) -> ImplicitLearner:
        """Returns a fresh learner."""
        return ImplicitLearner(spec, self, seed, value_loss=lambda d: expectile_loss(d, self.expectile), bellman_loss=squared)


def expectile_loss(differences: Tensor, expectile: float) -> Tensor:
    """Eq. 5: |tau - 1(d < 0)| d^2, whose minimum over V is the expectile tau of Q."""
    return torch.abs(expectile - (differences < 0).float()) * differences.square()
