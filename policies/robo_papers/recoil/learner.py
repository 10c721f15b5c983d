"""ReCOIL: Sikchi et al. 2024, "Dual RL: Unification and New Methods for Reinforcement and Imitation Learning", section 5.

arXiv:2302.08560. Imitates few episodes of an expert with the help of any others, without rewards and without a discriminator:
Q is high at the expert's steps, falls with the distance to them in time, and is otherwise an implicit Q-function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.iql import IQL, ImplicitSettings, squared
from robo_policies.learners.xql import GumbelLoss
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.extras import FromExpert
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class ReCOILConfig(ImplicitSettings):
    """Settings of ReCOIL (Sikchi et al. 2024, arXiv:2302.08560): offline imitation like IQL, without rewards.

    They choose the expert's episodes, and set the values of Q at expert steps and elsewhere. Values of Q are in units of their
    own, because no reward is read.
    """

    experts: str = "success"
    """Recorded episodes of the expert: all, success, "source NAME" or "return X" (robo_rl.extras.FromExpert)."""
    expert_value: float = 200.0
    """Value to which Q is pulled at the expert's steps; an end of an episode elsewhere is worth minus this, as in the authors'
    code."""
    step_value: float = -2.0
    """Number added at every other step, in place of a reward."""
    temperature: float = 1.0
    """Temperature of the soft maximum of Q that V follows: small is nearer the maximum and less stable."""
    largest_exponent: float = 7.0
    """Largest exponent (Q - V) / temperature; larger ones are clipped."""
    inverse_temperature: float = 3.0
    """Beta: factor of the advantage in the exponent of the policy's weights, per unit of Q."""
    value_layer_norm: bool = True
    """LayerNorm in the value network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self,
            {
                "reward_scale": (self.reward_scale == 1.0, "1: rewards are not read"),
                "reward_shift": (self.reward_shift == 0.0, "0: rewards are not read"),
            }
            | {name: (getattr(self, name) > 0, "above 0") for name in ("expert_value", "temperature", "largest_exponent")},
        )

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(FromExpert(self.experts, 0.5),))

    def build(self, spec: EnvironmentSpec, seed: int) -> IQL:
        """Build an untrained ReCOIL learner (IQL with its losses) for a spec; its networks are initialised from `seed`."""
        loss, targets = GumbelLoss(self.temperature, self.largest_exponent), ExpertTargets(self.expert_value, self.step_value)
        return IQL(spec, self, seed, value_loss=loss, bellman_loss=half_squared, targets=targets)


@dataclass(frozen=True)
class ExpertTargets:
    """Function that computes the targets of Q from whose steps they are, in place of rewards.

    They are 200 at the expert's steps, elsewhere y = -2 + gamma V(s') with V = -200 beyond an end.

    Differs from eq. 15, in which Q of the expert rises without bound, as the authors' code does.
    """

    expert_value: float
    step_value: float

    def __call__(self, next_v: Tensor, data: TensorBatch) -> Tensor:
        """Return the targets (B,)."""
        beyond = data.masks * next_v - (1.0 - data.masks) * self.expert_value
        return torch.where(data.extras["from_expert"], self.expert_value, self.step_value + data.discounts * beyond)


def half_squared(values: Tensor, targets: Tensor) -> Tensor:
    """Return half of the squared differences of values and targets, elementwise."""
    return 0.5 * squared(values, targets)
