"""Distributions of actions, with the derivatives that a policy gradient needs: Gaussian and Beta of numbers, categorical.

B batch, O outputs of the network, A action elements.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from robo_policies.networks.tanh_towers import Floats
from robo_rl.errors import InvalidSetting
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array

HALF_LOG_TAU = 0.5 * float(np.log(2.0 * np.pi))
EDGE = 1e-6  # nearest to 0 and to 1 that a Beta action is drawn: densities and their derivatives are finite there
LOG_WIDTH = math.log(2.0)  # of [-1, 1], in which policies act; the Beta distribution's own interval is [0, 1]


class ActionHead(Protocol):
    """Turns the outputs of a network into a distribution of actions."""

    outputs: int
    """Numbers that the network must provide for each row."""
    parameters: int
    """Parameters of the head itself, the same for every observation."""

    def mode(self, outputs: Floats) -> Array:
        """Returns the most likely actions of each row."""
        ...

    def draw(self, outputs: Floats, parameters: Floats, generator: np.random.Generator) -> Array:
        """Returns random actions."""
        ...

    def executed(self, actions: Array) -> Array:
        """Returns actions as the environment accepts them."""
        ...

    def log_density(self, outputs: Floats, parameters: Floats, actions: Array) -> Floats:
        """Returns log pi(a|s), (B,)."""
        ...

    def entropy(self, outputs: Floats, parameters: Floats) -> Floats:
        """Returns the entropy of each row [nat], (B,)."""
        ...

    def backward(
        self, outputs: Floats, parameters: Floats, actions: Array, slopes: Floats, entropy_slope: float
    ) -> tuple[Floats, Floats]:
        """Returns the derivatives by outputs (B, O) and by parameters of sum_i slopes_i log pi_i + entropy_slope sum_i H_i."""
        ...


class DiagonalGaussian:
    """a ~ Normal(mean(s), std) without correlations; the standard deviation is learnt and independent of the state.

    The parameters are log std, (A,). Actions are clipped to [-1, 1] where they are executed, and their densities are those
    before clipping, as in Stable-Baselines3.
    """

    def __init__(self, size: int) -> None:
        self.outputs = self.parameters = size

    def mode(self, outputs: Floats) -> Array:
        """Returns the means (B, A)."""
        return outputs

    def draw(self, outputs: Floats, parameters: Floats, generator: np.random.Generator) -> Array:
        """Returns actions (B, A), not yet clipped."""
        noise = generator.standard_normal(outputs.shape, np.float32)
        return outputs + np.exp(parameters) * noise

    def executed(self, actions: Array) -> Array:
        """Returns actions clipped to [-1, 1], float32."""
        return np.minimum(np.maximum(actions, np.float32(-1.0)), np.float32(1.0))

    def log_density(self, outputs: Floats, parameters: Floats, actions: Array) -> Floats:
        """Returns log pi(a|s), (B,)."""
        scores = (actions - outputs) * np.exp(-parameters)
        constant = float(parameters.sum()) + len(parameters) * HALF_LOG_TAU
        densities: Floats = np.float32(-0.5) * np.einsum("ba,ba->b", scores, scores) - np.float32(constant)
        return densities

    def entropy(self, outputs: Floats, parameters: Floats) -> Floats:
        """Returns the entropy (B,), the same in every row."""
        entropy = float(parameters.sum()) + len(parameters) * (HALF_LOG_TAU + 0.5)
        return np.full(len(outputs), entropy, np.float32)

    def backward(
        self, outputs: Floats, parameters: Floats, actions: Array, slopes: Floats, entropy_slope: float
    ) -> tuple[Floats, Floats]:
        """Returns d log pi / d mean = score / std and d log pi / d log std = score^2 - 1, weighted by the slopes."""
        inverse_std = np.exp(-parameters)
        scores = (actions - outputs) * inverse_std
        weighted = scores * slopes[:, None]
        by_log_std = np.einsum("ba,ba->a", weighted, scores) + np.float32(len(slopes) * entropy_slope - float(slopes.sum()))
        return weighted * inverse_std, by_log_std


class Beta:
    """u ~ Beta(alpha(s), beta(s)) for each element, a = 2 u - 1: no action is out of bounds, so that none is clipped.

    alpha and beta are 1 + softplus of an output each, hence above 1: one hump, and no mass piled up at the bounds. Actions are
    stored as u; densities and entropies are those of a. Chou et al. 2017, "Improving Stochastic Policy Gradients in Continuous
    Control with Deep Reinforcement Learning using the Beta Distribution". Computed in double precision: the logarithm of the
    gamma function of large numbers has no digits left in single.
    """

    parameters = 0

    def __init__(self, size: int) -> None:
        self.outputs = 2 * size

    def mode(self, outputs: Floats) -> Array:
        """Returns the most likely actions (B, A), (alpha - 1) / (alpha + beta - 2)."""
        above = self._concentrations(outputs) - 1.0
        tiny = torch.finfo(above.dtype).tiny  # where both are 0 the middle is as likely as the rest
        return ((above[:, 0] + tiny) / (above.sum(1) + 2 * tiny)).float().numpy()

    def draw(self, outputs: Floats, parameters: Floats, generator: np.random.Generator) -> Array:
        """Returns actions (B, A) in [0, 1], off the edges."""
        alpha, beta = self._concentrations(outputs).numpy().swapaxes(0, 1)
        return np.clip(generator.beta(alpha, beta), EDGE, 1.0 - EDGE).astype(np.float32)

    def executed(self, actions: Array) -> Array:
        """Returns actions in [-1, 1], float32."""
        return np.float32(2.0) * actions - np.float32(1.0)

    def log_density(self, outputs: Floats, parameters: Floats, actions: Array) -> Floats:
        """Returns log pi(a|s) = sum (alpha - 1) log u + (beta - 1) log(1 - u) - log B(alpha, beta) - log 2, (B,)."""
        concentrations = self._concentrations(outputs)
        densities = ((concentrations - 1.0) * _logs(actions)).sum(1) - _log_beta(concentrations) - LOG_WIDTH
        return densities.sum(1).float().numpy()

    def entropy(self, outputs: Floats, parameters: Floats) -> Floats:
        """Returns the entropy (B,)."""
        concentrations = self._concentrations(outputs)
        total = concentrations.sum(1)
        entropies = _log_beta(concentrations) + LOG_WIDTH + (total - 2.0) * torch.digamma(total)
        entropies -= ((concentrations - 1.0) * torch.digamma(concentrations)).sum(1)
        return entropies.sum(1).float().numpy()

    def backward(
        self, outputs: Floats, parameters: Floats, actions: Array, slopes: Floats, entropy_slope: float
    ) -> tuple[Floats, Floats]:
        """Returns d log pi / d alpha = log u - psi(alpha) + psi(alpha + beta) and the like, weighted by the slopes.

        d H / d alpha = (alpha + beta - 2) psi'(alpha + beta) - (alpha - 1) psi'(alpha); softplus has the logistic derivative.
        """
        concentrations = self._concentrations(outputs)
        total = concentrations.sum(1, keepdim=True)
        scores = _logs(actions) - torch.digamma(concentrations) + torch.digamma(total)
        by_concentrations = torch.from_numpy(slopes)[:, None, None] * scores
        if entropy_slope:
            both, each = torch.polygamma(1, total), torch.polygamma(1, concentrations)
            by_concentrations += entropy_slope * ((total - 2.0) * both - (concentrations - 1.0) * each)
        by_outputs = by_concentrations.reshape(outputs.shape) * torch.from_numpy(outputs).double().sigmoid()
        return by_outputs.float().numpy(), np.zeros(0, np.float32)

    def _concentrations(self, outputs: Floats) -> Tensor:
        """Returns alpha and beta of each element, (B, 2, A)."""
        return 1.0 + softplus(torch.from_numpy(outputs).double()).reshape(len(outputs), 2, -1)


class Categorical:
    """pi(a|s) = softmax(outputs): one of A choices, without parameters of its own."""

    parameters = 0

    def __init__(self, size: int) -> None:
        self.outputs = size

    def mode(self, outputs: Floats) -> Array:
        """Returns the most likely choices (B,) int64."""
        return outputs.argmax(-1)

    def draw(self, outputs: Floats, parameters: Floats, generator: np.random.Generator) -> Array:
        """Returns random choices (B,) int64, by the Gumbel-max trick (Gumbel 1954)."""
        return np.asarray((outputs + generator.gumbel(size=outputs.shape)).argmax(-1))

    def executed(self, actions: Array) -> Array:
        """Returns the choices as they are."""
        return actions

    def log_density(self, outputs: Floats, parameters: Floats, actions: Array) -> Floats:
        """Returns log pi(a|s), (B,)."""
        densities: Floats = log_softmax(outputs)[np.arange(len(actions)), actions]
        return densities

    def entropy(self, outputs: Floats, parameters: Floats) -> Floats:
        """Returns the entropy (B,)."""
        logs = log_softmax(outputs)
        entropy: Floats = -(np.exp(logs) * logs).sum(-1)
        return entropy

    def backward(
        self, outputs: Floats, parameters: Floats, actions: Array, slopes: Floats, entropy_slope: float
    ) -> tuple[Floats, Floats]:
        """Returns d log pi / d output = onehot(a) - pi and d H / d output = -pi (log pi + H), weighted by the slopes."""
        logs = log_softmax(outputs)
        probabilities = np.exp(logs)
        entropies = -(probabilities * logs).sum(-1, keepdims=True)
        by_outputs = -probabilities * (slopes[:, None] + np.float32(entropy_slope) * (logs + entropies))
        by_outputs[np.arange(len(actions)), actions] += slopes
        return by_outputs, np.zeros(0, np.float32)


def log_softmax(outputs: Floats) -> Floats:
    """Returns log(softmax(outputs)) over the last axis."""
    shifted = outputs - outputs.max(-1, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logs


def _logs(actions: Array) -> Tensor:
    """Returns log u and log(1 - u), (B, 2, A)."""
    shares = torch.from_numpy(actions).double()
    return torch.stack((shares.log(), torch.log1p(-shares)), 1)


def _log_beta(concentrations: Tensor) -> Tensor:
    """Returns the logarithm of the beta function, (B, A)."""
    return torch.lgamma(concentrations).sum(1) - torch.lgamma(concentrations.sum(1))


CONTINUOUS: dict[str, type[DiagonalGaussian | Beta]] = {"normal": DiagonalGaussian, "beta": Beta}
"""Name -> distribution of continuous actions."""


def head_of(spec: EnvironmentSpec, continuous: str) -> ActionHead:
    """Returns a distribution of the actions of an environment; raises InvalidSetting for a Beta distribution of choices."""
    if not spec.action.is_discrete:
        return CONTINUOUS[continuous](spec.action.size)
    if continuous != "normal":
        raise InvalidSetting(
            f"The actions of {spec.name!r} are choices, which no {continuous} distribution draws.",
            got=f"policy {continuous}, {spec.action.size} choices",
            allowed="continuous actions",
            fix="leave policy out",
        )
    return Categorical(spec.action.size)
