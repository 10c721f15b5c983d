"""XQL: Garg et al. 2023, "Extreme Q-Learning: MaxEnt RL without Entropy" (arXiv 2301.02328)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.iql import IQL, ImplicitSettings, huber
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class XQLConfig(ImplicitSettings):
    """Settings of XQL (Garg et al. 2023, arXiv 2301.02328), an offline learner like IQL with a Gumbel loss of V.

    Its own fields set the temperature of the soft maximum that V follows, and where exponents are clipped.
    """

    temperature: float = 1.0
    """Temperature T [reward] of the soft maximum of Q that V follows; a small T is nearer to the maximum and less stable."""
    largest_exponent: float = 7.0
    """Largest exponent (Q - V) / T; larger ones are clipped. The authors' commands use 5 to 7."""
    value_layer_norm: bool = True
    """LayerNorm in the value network, as in the authors' commands."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {name: (getattr(self, name) > 0, "above 0") for name in ("temperature", "largest_exponent")})

    def build(self, spec: EnvironmentSpec, seed: int) -> IQL:
        """Build an untrained learner (IQL with the loss of XQL) for a spec; its networks are initialised from `seed`."""
        loss = GumbelLoss(self.temperature, self.largest_exponent)
        return IQL(spec, self, seed, value_loss=loss, bellman_loss=huber)


@dataclass(frozen=True)
class GumbelLoss:
    """Gumbel loss of V: exp(d/T) - d/T - 1 with d = Q - V (eq. 9). The best V is the soft maximum T log mean exp(Q/T).

    The loss is multiplied by exp(-m), so that the gradient stays finite, as in the authors' code. m is the largest exponent of
    the batch, at least -1.
    """

    temperature: float
    largest_exponent: float

    def __call__(self, differences: Tensor) -> Tensor:
        """Return the loss of each row (B,), given d = Q - V."""
        exponents = torch.clamp(differences / self.temperature, max=self.largest_exponent)
        largest = exponents.detach().max().clamp(min=-1.0)
        return torch.exp(exponents - largest) - exponents * torch.exp(-largest) - torch.exp(-largest)
