"""Actors of learners from recorded data: deterministic, Gaussian around a squashed mean, and for discrete actions.

B batch, F features of an observation, A action elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.networks.actor_critic import NetworkFactory, Trainable, normal

GAUSSIAN_LOG_STD = (-5.0, 2.0)  # limits of IQL's policy in the authors' code


class DeterministicActor(Trainable):
    """Deterministic actor a = tanh(f(s)), trained by the squared error to recorded actions.

    The squared error is the likelihood of a Gaussian with a fixed deviation. The tanh-Gaussian of SAC does not fit:
    demonstrators often command exactly -1 or 1, where its density has no maximum. `exploration` is the standard deviation of
    noise that `draw` adds, 0 for none.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int, exploration: float = 0.0) -> None:
        super().__init__()
        self.layers = factory.actor(inputs, actions)
        self.exploration = exploration

    def forward(self, observations: Tensor) -> Tensor:
        """Return actions (B, A) in [-1, 1] for features (B, F)."""
        return torch.tanh(self.layers(observations).squeeze(0))

    mode = forward

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the squared errors (B,) to actions (B, A), averaged over the A elements."""
        return ((self(observations) - actions) ** 2).mean(-1)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return actions (B, A) with Gaussian noise of deviation `exploration`, clipped to [-1, 1]."""
        actions: Tensor = self(observations)
        if not self.exploration:
            return actions
        return torch.clamp(actions + self.exploration * normal(actions, generator), -1.0, 1.0)


class GaussianActor(Trainable):
    """Actor with a Gaussian around a squashed mean, as in IQL: a ~ Normal(tanh(f(s)), std).

    The std is learnt and the same in every state. Densities are those before actions are clipped to [-1, 1]. `dropout` is the
    probability that a hidden unit is dropped in `log_density`.
    """

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = factory.actor(inputs, actions, dropout)
        self.log_std = nn.Parameter(torch.zeros(actions))
        self._dropout = dropout

    def log_density(self, observations: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """Return log pi(a|s) (B,) of actions (B, A) for features (B, F); the generator draws the dropped units."""
        log_std = self._log_std()
        dropping = {"generator": generator} if self._dropout else {}
        scores = (actions - torch.tanh(self.layers(observations, **dropping).squeeze(0))) * torch.exp(-log_std)
        constant = log_std.sum() + 0.5 * math.log(2 * math.pi) * len(log_std)
        return -0.5 * scores.square().sum(-1) - constant

    def mode(self, observations: Tensor) -> Tensor:
        """Return the means (B, A), which lie in [-1, 1]."""
        return torch.tanh(self.layers(observations).squeeze(0))

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random actions (B, A), clipped to [-1, 1]."""
        mean = self.mode(observations)
        return torch.clamp(mean + torch.exp(self._log_std()) * normal(mean, generator), -1.0, 1.0)

    def _log_std(self) -> Tensor:
        return self.log_std.clamp(*GAUSSIAN_LOG_STD)


class CategoricalActor(Trainable):
    """Actor for discrete actions: pi(a|s) = softmax(f(s))."""

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int) -> None:
        super().__init__()
        self.layers = factory.actor(inputs, actions)

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the cross entropy -log pi(a|s) (B,) of discrete actions (B,), given features (B, F)."""
        return functional.cross_entropy(self.layers(observations).squeeze(0), actions, reduction="none")

    def mode(self, observations: Tensor) -> Tensor:
        """Return the most likely choice (B,) for features (B, F), int64."""
        choices: Tensor = self.layers(observations).squeeze(0).argmax(-1)
        return choices

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random choice (B,) for features (B, F), int64."""
        chances = self.layers(observations).squeeze(0).softmax(-1).cpu()  # the generator's device
        return torch.multinomial(chances, 1, generator=generator).squeeze(-1)
