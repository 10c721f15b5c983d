"""Functions of PPO's gradient step: probability ratio, clipped surrogate, estimate of the KL divergence, and Adam.

Schulman et al. 2017, arXiv:1707.06347, section 3. B rows. Adam limits the norm of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from robo_policies.networks.accelerated.adam import adam

LARGEST_LOG_RATIO = 20.0  # far outside any clip range, and its exponential is finite


def probability_ratio(log_densities: Tensor, old: Tensor) -> Tensor:
    """Return r = pi(a|s) / pi_old(a|s) (B,) for log pi(a|s) (B,) and log pi_old(a|s) (B,); at most e^20."""
    return torch.exp((log_densities - old).clamp(max=LARGEST_LOG_RATIO))


def clipped_surrogate(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Return min(r A, clip(r, 1 - low, 1 + high) A) (B,), eq. 7 without the mean; in the paper low = high = epsilon."""
    edge = torch.maximum((1.0 - low) * advantages, (1.0 + high) * advantages)  # the clip takes from gains alone
    return (ratio * advantages).clamp(max=edge)


def divergence(ratio: Tensor) -> Tensor:
    """Estimate KL(pi_old || pi) [nat], a scalar, by the mean of (r - 1) - log r over ratios r (B,) (Schulman 2020)."""
    return ((ratio - 1.0) - ratio.log()).mean()


class ClippedAdam:
    """Adam (Kingma & Ba 2015, algorithm 1) that scales gradients down to a largest norm; PPO and multipliers use it.

    All parameters become views of one tensor, `flat`, and their gradients views of another, `gradient`, which makes a step
    fast. No step waits for a transfer from the device.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, *, max_norm: float = math.inf, epsilon: float = 1e-5) -> None:
        """Make the optimiser of some parameters.

        Args:
            parameters: Parameters on one device.
            lr: Learning rate.
            max_norm: Norm to which longer gradients are scaled.
            epsilon: Added to the root of the second moment; 1e-5 as in Stable-Baselines3's PPO, 1e-8 in the paper.
        """
        parameters = list(parameters)
        self.lr, self._max_norm, self._epsilon = lr, max_norm, epsilon
        self.flat = torch.cat([each.detach().reshape(-1) for each in parameters])
        self.gradient = torch.zeros_like(self.flat)
        sizes = [each.numel() for each in parameters]
        for each, *parts in zip(parameters, self.flat.split(sizes), self.gradient.split(sizes), strict=True):
            each.data, each.grad = (part.view(each.shape) for part in parts)
        self.state = {"mean": torch.zeros_like(self.flat), "square": torch.zeros_like(self.flat)}
        self.state["step"] = torch.zeros((), device=self.flat.device)
        self._tiny = torch.full_like(self.state["step"], 1e-6 / max_norm)  # PyTorch adds 1e-6 to norms
        self.norms: list[Tensor] = []
        """Norms of the gradients of all steps since the list was last replaced."""

    def descend(self, loss: Tensor) -> None:
        """Take one gradient step on a scalar loss."""
        self.gradient.zero_()
        loss.backward()
        self.step(self.gradient)

    def step(self, gradient: Tensor) -> None:
        """Take one step for a gradient with the layout of `flat`, and append its norm to `norms`.

        The gradient is not checked: NaN or infinity makes the parameters NaN, which the caller sees in `norms`.
        """
        self.norms.append(norm := torch.linalg.vector_norm(gradient))
        excess = torch.add(self._tiny, norm, alpha=1.0 / self._max_norm).clamp_(min=1.0)
        mean, square, step = self.state.values()
        step += 1.0
        adam([self.flat], [gradient / excess], ([mean], [square]), step, self.lr, epsilon=self._epsilon)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the moments and of the number of steps, on the CPU."""
        return {name: value.detach().to("cpu", copy=True) for name, value in self.state.items()}

    def load_state_dict(self, state: Any) -> None:
        """Restore the state returned by `state_dict`."""
        for name, value in self.state.items():
            value.copy_(torch.as_tensor(state[name]))
