"""A small network that gives every step a reward, and learns from the returns of whole episodes.

    r(x) = m + d f((x - mean) / deviation)

m and d are mean and deviation of R/T over the episodes so far, mean and deviation those of the inputs. Differs from the
published code, which feeds both unscaled: positions and their differences, or factors that a language model wrote, are of any
scale, and a learning rate suits one scale. Before the first update every step is worth about as much as an average step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from robo_rl.errors import NonFiniteUpdate, require_allowed
from robo_rl.moments import RunningMoments
from robo_rl.types import StateDict

Floats = npt.NDArray[np.float32]
Gradient = Callable[[Floats], tuple[float, Floats]]
"""Function that returns a loss of rewards (B,), and its derivative by each reward (B,)."""


@dataclass(frozen=True)
class DecoderConfig:
    """Settings of the network that learns step rewards; defaults are those of Qu et al. 2025 unless a field notes another."""

    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers (ReLU)."""
    lr: float = 3e-4
    """Learning rate of Adam."""
    rows: int = 256
    """Number of steps in one update, about."""

    def __post_init__(self) -> None:
        units = len(self.hidden) >= 1 and min(self.hidden) >= 1
        allowed = {"hidden": (units, "one layer or more, of 1 unit or more"), "lr": (self.lr > 0, "above 0")}
        require_allowed(self, allowed | {"rows": (self.rows >= 1, "1 or more")})


class RunningScale(RunningMoments):
    """Running mean and standard deviation of vectors, by which a network's inputs are scaled."""

    @property
    def deviation(self) -> npt.NDArray[np.float64]:
        """Standard deviations (D,); 1 for numbers that have not varied yet."""
        found = np.sqrt(self.variance)
        return np.where(found > 1e-6 * np.maximum(np.abs(self.mean), 1.0), found, 1.0)


class Decoder:
    """Network that gives each step a reward, with the scales of its inputs and outputs and its own Adam (Kingma & Ba 2015).

    A hot path: one forward pass, one update and one relabelling for each update of the learner. Networks of this size take half
    the time in numpy, gradients by hand, that they take in PyTorch; all parameters lie in one vector.
    """

    def __init__(self, size: int, config: DecoderConfig, seed: int) -> None:
        self._lr, self._updates = config.lr, 0
        self.inputs, self.returns = RunningScale(size), RunningScale(1)
        self._shapes = [*pairwise((size, *config.hidden, 1))]
        count = sum((inputs + 1) * outputs for inputs, outputs in self._shapes)
        self._parameters, self._gradient, self._means, self._squares = np.zeros((4, count), np.float32)
        self._layers, self._by_layers = self._views(self._parameters), self._views(self._gradient)
        generator = np.random.default_rng([seed, 1])  # apart from the draws of episodes by the same seed
        for weights, biases in self._layers:
            bound = 1 / math.sqrt(len(weights))  # as PyTorch's linear layers
            weights[:], biases[:] = (generator.uniform(-bound, bound, each.shape) for each in (weights, biases))

    def observe(self, inputs: Floats, mean_reward: float) -> None:
        """Update the scales with an episode's inputs (T, D) and its return divided by T."""
        self.inputs.merge(inputs)
        self.returns.merge(np.array([[mean_reward]]))

    def rewards(self, inputs: Floats) -> Floats:
        """Return the rewards (B,) of steps with inputs (B, D)."""
        return self._outer(self._forward(inputs)[-1])

    @np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite raise with a better message
    def descend(self, inputs: Floats, gradient: Gradient) -> float:
        """Take one step of Adam down a loss of the rewards of steps (B, D), and return the loss.

        gradient: returns the loss of rewards (B,), and its derivative by each. Raises NonFiniteUpdate, keeping the parameters,
        if that is not finite.
        """
        activations = self._forward(inputs)
        loss, by_rewards = gradient(self._outer(activations[-1]))
        self._backward(activations, by_rewards * np.float32(self.returns.deviation[0]))
        if not math.isfinite(loss + float(self._gradient.sum())):
            raise NonFiniteUpdate(
                f"Update {self._updates} of the decomposition was refused: its gradient is not finite.",
                got=f"loss {loss}",
                allowed="finite numbers",
                fix="look at the returns of the environment and at the factors of the program",
            )
        self._step()
        return loss

    def _forward(self, inputs: Floats) -> list[Floats]:
        """Return the standardised inputs, the output of each hidden layer, and that of the last (B, 1)."""
        scale = 1 / self.inputs.deviation
        layer: Floats = (inputs * scale.astype(np.float32)) - (self.inputs.mean * scale).astype(np.float32)
        found = [layer]
        for weights, biases in self._layers:
            layer = layer @ weights
            layer += biases
            found.append(layer)
            if weights is not self._layers[-1][0]:
                np.maximum(layer, 0, out=layer)
        return found

    def _backward(self, activations: list[Floats], by_outputs: Floats) -> None:
        """Write the gradient, given the derivative of the loss by each output (B,)."""
        by_layer = by_outputs[:, None]
        for number in reversed(range(len(self._layers))):
            by_weights, by_biases = self._by_layers[number]
            np.matmul(activations[number].T, by_layer, out=by_weights)
            by_layer.sum(0, out=by_biases)
            if number:
                by_layer = (by_layer @ self._layers[number][0].T) * (activations[number] > 0)

    def _step(self) -> None:
        self._updates += 1
        self._means += (self._gradient - self._means) * np.float32(0.1)  # 1 - 0.9, and below 1 - 0.999: the paper's
        self._squares += (self._gradient**2 - self._squares) * np.float32(0.001)
        rate = self._lr * math.sqrt(1 - 0.999**self._updates) / (1 - 0.9**self._updates)
        self._parameters -= np.float32(rate) * self._means / (np.sqrt(self._squares) + np.float32(1e-8))

    def _outer(self, outputs: Floats) -> Floats:
        mean, deviation = np.float32(self.returns.mean[0]), np.float32(self.returns.deviation[0])
        found: Floats = mean + deviation * outputs[:, 0]
        return found

    def _views(self, whole: Floats) -> list[tuple[Floats, Floats]]:
        """Return weights (inputs, outputs) and biases (outputs,) of each layer as views of one vector."""
        found, start = [], 0
        for inputs, outputs in self._shapes:
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            found.append((whole[start:middle].reshape(inputs, outputs), whole[middle:end]))
            start = end
        return found

    def state_dict(self) -> StateDict:
        """Return parameters, moments and scales."""
        vectors = {name: vector.copy() for name, vector in self._vectors.items()}
        scales = {"inputs": self.inputs.state_dict(), "returns": self.returns.state_dict()}
        return {"updates": self._updates, **vectors, **scales}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state; the next step continues as if uninterrupted."""
        self._updates = int(state["updates"])
        for name, vector in self._vectors.items():
            vector[:] = state[name]
        self.inputs.load_state_dict(state["inputs"])
        self.returns.load_state_dict(state["returns"])

    @property
    def _vectors(self) -> dict[str, Floats]:
        return {"parameters": self._parameters, "means": self._means, "squares": self._squares}
