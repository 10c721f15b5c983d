"""Distributions of actions, with the derivatives that a policy gradient needs: Gaussian for numbers, categorical for choices.

B batch, O outputs of the network, A action elements.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from robo_policies.tanh_towers import Floats
from robo_rl.types import Array

HALF_LOG_TAU = 0.5 * float(np.log(2.0 * np.pi))


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
