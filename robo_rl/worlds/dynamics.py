"""Ensemble of probabilistic dynamics with heads for reward, end and success.

Chua et al. 2018, "Deep Reinforcement Learning in a Handful of Trials using Probabilistic Dynamics Models" (PETS),
arXiv:1805.12114: each member gives mean and variance of the change of the state, with soft bounds on the log variance
(appendix A.1). Janner et al. 2019, "When to Trust Your Model" (MBPO), arXiv:1906.08253, adds the reward, held-out rows and
elites. Differs from both: two logits tell end and success, which MBPO takes from rules written by hand.

K members, B rows, S elements of a state, A elements of an action; C = S + 1 columns: changes and reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.ensemble import Ensemble
from robo_rl.errors import require_allowed
from robo_rl.worlds.steps import Steps

LEAST_SCALE = 1e-6
"""Deviation below which an element of the state counts as constant: it is then never predicted to change."""
BOUNDS = (-10.0, 0.5)
"""Soft bounds of the log variance before the fit, in standardised units."""
BOUND_WEIGHT = 0.01
"""Weight in the loss of the distance between the soft bounds of the log variance."""


@dataclass(frozen=True)
class DynamicsConfig:
    """Settings of a world model, an ensemble of networks, and of its fit; the papers have 7 members of 4 x 200 units."""

    hidden: tuple[int, ...] = (200, 200)
    """Units of the hidden layers."""
    members: int = 5
    """Number of networks in the ensemble."""
    elites: int = 3
    """Number of networks that predict: those with the least error on held-out rows."""
    lr: float = 1e-3
    """Learning rate of AdamW."""
    weight_decay: float = 1e-5
    """Weight decay of AdamW."""
    batch_size: int = 256
    """Number of rows in one update of each network."""
    held_out: float = 0.1
    """Share of the rows that are held out, at most 5,000 of them."""
    epochs: int = 200
    """Largest number of passes through the data."""
    patience: int = 5
    """Passes without an improvement by 1 % after which a fit stops."""
    device: str = "cpu"
    """Device of the fit: cpu, cuda, mps, or auto for the first that is present."""
    seed: int = 0
    """Seed of first weights, held-out rows and batches."""

    def __post_init__(self) -> None:
        least = {"members": 1, "batch_size": 1, "epochs": 1, "patience": 1, "seed": 0}
        allowed = {name: (getattr(self, name) >= low, f"{low} or more") for name, low in least.items()}
        allowed["elites"] = (1 <= self.elites <= self.members, f"1 to members = {self.members}")
        allowed["hidden"] = (all(units >= 1 for units in self.hidden), "1 or more units in each layer")
        allowed["held_out"] = (0.0 < self.held_out <= 0.5, "above 0, up to 0.5")
        allowed["lr"] = (self.lr > 0, "above 0")
        require_allowed(self, allowed)


class Prediction(NamedTuple):
    """Predictions of K networks for B steps: C standardised numbers with variances, and logits of an end and a success."""

    means: Tensor
    """(K, B, C) predicted changes of the state and reward, standardised"""
    log_variances: Tensor
    """(K, B, C) logarithms of the predicted variances"""
    logits: Tensor
    """(K, B, 2) logits of an end and of a success"""


class Dynamics(nn.Module):
    """World model: K networks that predict from state and action the changes of the state, the reward, end and success.

    Changes and reward are Gaussians, end and success logits.
    """

    scale: Tensor
    centre: Tensor
    elites: Tensor
    __call__: Callable[..., Prediction]

    def __init__(self, states: int, actions: int, config: DynamicsConfig) -> None:
        """states: S. actions: A."""
        super().__init__()
        self.states, self.config = states, config
        columns = states + 1
        self.network = Ensemble((states + actions, *config.hidden, 2 * columns + 2), config.members, config.seed)
        self.least_log_variance = nn.Parameter(torch.full((columns,), BOUNDS[0]))
        self.largest_log_variance = nn.Parameter(torch.full((columns,), BOUNDS[1]))
        self.register_buffer("scale", torch.ones(columns))
        self.register_buffer("centre", torch.zeros(columns))
        self.register_buffer("elites", torch.arange(config.elites))

    def standardise(self, steps: Steps) -> None:
        """Compute from these steps the mean and deviation by which inputs and targets are standardised."""
        inputs, targets = inputs_of(steps), targets_of(steps)
        deviation = inputs.std(0, correction=0)
        self.network.mean.copy_(inputs.mean(0))
        self.network.deviation.copy_(torch.where(deviation > LEAST_SCALE, deviation, torch.ones_like(deviation)))
        self.centre.copy_(targets.mean(0))
        self.scale.copy_(targets.std(0, correction=0))
        constant = self.scale <= LEAST_SCALE
        self.scale[constant] = 0.0

    def forward(self, inputs: Tensor) -> Prediction:
        """Return the predictions for inputs (B, S + A), or (K, B, S + A) with others for each member."""
        outputs, columns = self.network.outputs(inputs), self.states + 1
        raw = outputs[..., columns : 2 * columns]
        upper = self.largest_log_variance - functional.softplus(self.largest_log_variance - raw)
        lower = self.least_log_variance + functional.softplus(upper - self.least_log_variance)
        return Prediction(outputs[..., :columns], lower, outputs[..., 2 * columns :])

    def loss(self, inputs: Tensor, targets: Tensor, flags: Tensor) -> Tensor:
        """Return the loss of the fit, a scalar, summed over the K networks.

        It is the negative log likelihood of the Gaussians, plus the cross entropy of end and success.

        Args:
            inputs: (K, B, S + A).
            targets: (K, B, C) standardised.
            flags: (K, B, 2) 1 at the end, 1 at a success.
        """
        means, log_variances, logits = self(inputs)
        surprise = (means - targets).square() * torch.exp(-log_variances) + log_variances
        bounds = (self.largest_log_variance - self.least_log_variance).sum()
        return (_by_part(surprise) + _told(logits, flags)).sum() + BOUND_WEIGHT * bounds

    @torch.no_grad()
    def errors(self, inputs: Tensor, targets: Tensor, flags: Tensor) -> Tensor:
        """Return the held-out error (K,): squared errors of state and reward, and cross entropy of end and success."""
        means, _, logits = self(inputs)
        return _by_part((means - targets).square()) + _told(logits, flags.expand_as(logits))

    def standardised(self, targets: Tensor) -> Tensor:
        """Return targets (B, C) standardised; constant ones are 0."""
        return torch.where(self.scale > 0, (targets - self.centre) / self.scale.clamp(min=LEAST_SCALE), 0.0)


def _by_part(values: Tensor) -> Tensor:
    """Return the mean (K,) of values (K, B, C) over the state, plus that of the reward.

    Differs from MBPO, in which the reward is one column of many: the few rows that are paid for would be lost among them.
    """
    return values[..., :-1].mean((1, 2)) + values[..., -1].mean(1)


def _told(logits: Tensor, flags: Tensor) -> Tensor:
    """Return the cross entropy (K,) of end and success, each summed with the other."""
    return functional.binary_cross_entropy_with_logits(logits, flags, reduction="none").mean(1).sum(-1)


def inputs_of(steps: Steps) -> Tensor:
    """Return states and actions side by side, (N, S + A)."""
    return torch.from_numpy(np.concatenate([steps.states, steps.actions], 1))


def targets_of(steps: Steps) -> Tensor:
    """Return changes of the state and rewards side by side, (N, C)."""
    return torch.from_numpy(np.concatenate([steps.following - steps.states, steps.rewards[:, None]], 1))


def flags_of(steps: Steps) -> Tensor:
    """Return ends and successes (N, 2), 0 or 1."""
    return torch.from_numpy(np.stack([steps.ends, steps.successes], 1).astype(np.float32))


def member_parameters(dynamics: Dynamics) -> Sequence[nn.Parameter]:
    """Return the parameters whose first axis is that of the members."""
    return [*dynamics.network.weights, *dynamics.network.biases]
