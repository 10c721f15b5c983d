"""Networks of the learners from recorded data, written with autograd.

B batch, D encoded observation, A action elements, N critics.

Layers start as torch.nn.Linear does, drawn from a generator that is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from robo_policies.networks.networks import LOG_STD_MAX, LOG_STD_MIN, mlp

GAUSSIAN_LOG_STD = (-5.0, 2.0)  # limits of IQL's policy in the authors' code


class EnsembleLinear(nn.Module):
    """N linear layers side by side: (N, B, in) -> (N, B, out)."""

    def __init__(self, members: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns (N, B, out)."""
        return torch.baddbmm(self.bias, inputs, self.weight)


class EnsembleLayerNorm(nn.Module):
    """Layer normalisation (Ba et al. 2016) with scale and shift of each member's own."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.weight, self.bias = nn.Parameter(torch.ones(members, 1, size)), nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns (N, B, size)."""
        return nn.functional.layer_norm(inputs, (self.size,)) * self.weight + self.bias


class Critics(nn.Module):
    """N functions Q_i(s, a), or V_i(s) where `actions` is 0, with ReLU and optional LayerNorm before it."""

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        *,
        members: int = 2,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.members = members
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((observations + actions, *hidden)):
            layers.append(EnsembleLinear(members, inputs, outputs, generator))
            layers += [EnsembleLayerNorm(members, outputs)] if layer_norm else []
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers, EnsembleLinear(members, hidden[-1], 1, generator))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Returns (N, B) for observations (B, D) and, where there are any, actions (B, A)."""
        joined = torch.cat(inputs, -1)
        values: Tensor = self.layers(joined.expand(self.members, *joined.shape))
        return values.squeeze(-1)


class DeterministicActor(nn.Module):
    """a = tanh(f(s)); explores with Gaussian noise around it."""

    def __init__(
        self, observations: int, actions: int, hidden: Sequence[int], generator: torch.Generator, exploration: float
    ) -> None:
        super().__init__()
        self.layers = mlp((observations, *hidden, actions), generator)
        self.exploration = exploration

    def forward(self, observations: Tensor) -> Tensor:
        """Returns actions (B, A)."""
        return torch.tanh(self.layers(observations))

    mode = forward

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns actions (B, A) with noise, within [-1, 1]."""
        actions = self(observations)
        noise = torch.randn(actions.shape, generator=generator)
        return torch.clamp(actions + self.exploration * noise, -1.0, 1.0)


class GaussianActor(nn.Module):
    """a ~ Normal(tanh(f(s)), std), std the same in every state: IQL's policy, whose density is that before clipping."""

    def __init__(
        self, observations: int, actions: int, hidden: Sequence[int], generator: torch.Generator, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layers = mlp((observations, *hidden, actions), generator)
        self.log_std = nn.Parameter(torch.zeros(actions))
        self._dropout = dropout

    def log_density(self, observations: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """Returns log pi(a|s), (B,); drops hidden units out where the actor was made to."""
        log_std = self._log_std()
        scores = (actions - torch.tanh(self._hidden(observations, generator))) * torch.exp(-log_std)
        constant = log_std.sum() + 0.5 * math.log(2 * math.pi) * len(log_std)
        return -0.5 * scores.square().sum(-1) - constant

    def mode(self, observations: Tensor) -> Tensor:
        """Returns the means (B, A)."""
        return torch.tanh(self.layers(observations))

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns actions (B, A), clipped to [-1, 1]."""
        mean = self.mode(observations)
        noise = torch.randn(mean.shape, generator=generator)
        return torch.clamp(mean + torch.exp(self._log_std()) * noise, -1.0, 1.0)

    def _log_std(self) -> Tensor:
        return self.log_std.clamp(*GAUSSIAN_LOG_STD)

    def _hidden(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        values = observations
        for layer in self.layers:
            values = layer(values)
            if self._dropout and isinstance(layer, nn.ReLU):
                kept = torch.rand(values.shape, generator=generator) >= self._dropout
                values = values * kept / (1.0 - self._dropout)
        return values


class TanhGaussianActor(nn.Module):
    """a = tanh(u), u ~ Normal(mean(s), std(s)): the policy of soft actor-critic."""

    def __init__(self, observations: int, actions: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.layers = mlp((observations, *hidden, 2 * actions), generator)

    def sample(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Returns actions (B, A), through which gradients flow, and log pi (B,)."""
        mean, log_std = self._distribution(observations)
        noise = torch.randn(mean.shape, generator=generator)
        unbounded = mean + torch.exp(log_std) * noise
        # log(1 - tanh(u)^2) in a form that stays finite where tanh(u) rounds to 1
        squash = 2.0 * (math.log(2.0) - unbounded - nn.functional.softplus(-2.0 * unbounded))
        density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - squash
        return torch.tanh(unbounded), density.sum(-1)

    def mode(self, observations: Tensor) -> Tensor:
        """Returns tanh of the mean, (B, A)."""
        return torch.tanh(self._distribution(observations)[0])

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns actions (B, A) without their densities."""
        return self.sample(observations, generator)[0]

    def _distribution(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.layers(observations).chunk(2, -1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
