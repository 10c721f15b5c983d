"""f-DVL: Sikchi et al. 2024.

"Dual RL: Unification and New Methods for Reinforcement and Imitation Learning" (arXiv 2302.08560).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from robo_policies.learners.iql import IQL, ImplicitSettings, huber
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class FDVLConfig(ImplicitSettings):
    """Settings of f-DVL (Sikchi et al. 2024, arXiv 2302.08560), an offline learner like IQL with another loss of V.

    Its own fields choose the divergence behind this loss and how near V lies to the best recorded action.
    """

    divergence: Literal["chi-square", "total-variation"] = "chi-square"
    """Divergence whose conjugate is the loss of V. The third divergence of the paper, reverse KL, is `algorithm: xql`."""
    level: float = 0.8
    """Lambda, above 0.5 and below 1: the larger, the higher V(s) lies among the Q(s, a) of the data. With total-variation V(s)
    is the quantile (2 lambda - 1) / lambda: 0.75 for 0.8, the median for 2/3."""
    batch_size: int = 1024
    """Recorded steps of one update, the authors' number; other offline learners here take 256."""
    value_layer_norm: bool = True
    """LayerNorm in the value network, as in the authors' commands."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"divergence": (self.divergence in LOSSES, " or ".join(LOSSES))}
        require_allowed(self, allowed | {"level": (0.5 < self.level < 1.0, "between 0.5 and 1, both excluded")})

    def build(self, spec: EnvironmentSpec, seed: int) -> IQL:
        """Build an untrained learner (IQL with the loss of f-DVL) for a spec; its networks are initialised from `seed`."""
        loss = LOSSES[self.divergence]
        return IQL(spec, self, seed, value_loss=lambda d: loss(d, self.level), bellman_loss=huber)


def total_variation_loss(differences: Tensor, level: float) -> Tensor:
    """Return lambda max(d, 0) - (1 - lambda) d (B,), for d = Q - V (B,) and lambda = `level`.

    The V with the smallest loss is the quantile (2 lambda - 1) / lambda of Q.
    """
    return level * differences.clamp(min=0.0) - (1.0 - level) * differences


def chi_square_loss(differences: Tensor, level: float) -> Tensor:
    """Return lambda max(d + d^2/4, 0) - (1 - lambda) d (B,), for d = Q - V (B,) and lambda = `level`.

    This is the authors' form. max(d + d^2/4, 0) is 0 from -4 to 0 and rises again below -4, while the conjugate of the
    divergence is constant for d < -2.
    """
    return level * (differences + 0.25 * differences.square()).clamp(min=0.0) - (1.0 - level) * differences


LOSSES = {"chi-square": chi_square_loss, "total-variation": total_variation_loss}
