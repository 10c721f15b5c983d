"""TD3+BC: Fujimoto & Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning" (arXiv 2106.06860)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from robo_policies.learners.td3 import TD3, Regulariser, TD3Settings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class TD3BCSettings(TD3Settings):
    """Settings common to TD3+BC and OER: weight of Q against cloning; other defaults are those of the TD3+BC paper."""

    alpha: float = 2.5
    """Weight of Q, scaled to a mean of 1, relative to the squared error of cloning; with 0 the learner only clones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"alpha": (self.alpha >= 0, "0 or more")})


@dataclass(frozen=True)
class TD3BCConfig(TD3BCSettings):
    """Settings of the learner `td3_bc` (Fujimoto & Gu 2021, arXiv 2106.06860): exactly the fields of `TD3BCSettings`."""

    def build(self, spec: EnvironmentSpec, seed: int) -> TD3:
        """Build an untrained TD3+BC learner for the spec of an environment; its networks are initialised from `seed`."""
        return TD3(spec, self, seed, Cloning(self.alpha))


@dataclass(frozen=True)
class Cloning(Regulariser):
    """Regulariser of TD3+BC: adds the squared difference from the recorded action to the actor's loss."""

    alpha: float

    @override
    def actor_loss(self, learner: TD3, observations: Tensor, data: TensorBatch) -> Tensor:
        """Return the mean of (pi(s) - a)^2 - lambda Q_1(s, pi(s)), with lambda = alpha / mean |Q_1| (eq. 3 to 5)."""
        actions = learner.actor(observations)
        q = learner.critic(observations, actions)[0]
        scale = self.alpha / q.detach().abs().mean().clamp(min=1e-6)
        cloning = (actions - data.actions).square().mean(-1)
        return (data.weights * (cloning - scale * q)).mean()
