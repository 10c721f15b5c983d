"""Actor and critic as two small tanh networks of the same hidden sizes, with a backward pass written out.

B batch, D inputs, H units of a layer, O outputs of the actor. Written in NumPy: at 64 rows and 64 units an operation of
PyTorch costs more than its arithmetic, and automatic differentiation several times that (measured in docs/learners/ppo.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

ACTOR, CRITIC = 0, -1  # first and last of two; of inputs, which both share, the only one
HIDDEN_GAIN, ACTOR_GAIN, CRITIC_GAIN = np.sqrt(2.0), 0.01, 1.0  # scales of the first weights in Stable-Baselines3's PPO


class TanhTowers:
    """Two networks evaluated together: hidden layers are (2, in + 1, out), the last row of each weight is its bias.

    All parameters lie in one flat array, and so do their gradients, so that one call of an optimiser updates everything.
    `extra` more parameters at the end belong to whoever asked for them. The last `privileged` of the inputs are the critic's
    alone: the actor's weights of them are 0 and stay so, and `act` does not read them.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        generator: np.random.Generator,
        *,
        extra: int = 0,
        privileged: int = 0,
    ) -> None:
        self._sizes = (inputs, *hidden)
        self._shapes = [(2, before + 1, after) for before, after in pairwise(self._sizes)]
        self._shapes += [(self._sizes[-1] + 1, outputs), (self._sizes[-1] + 1, 1), (extra,)]
        self.parameters = np.zeros(sum(prod(shape) for shape in self._shapes), np.float32)
        self.gradient = np.zeros_like(self.parameters)
        *self._weights, self._actor, self._critic, self.extra = self._parts(self.parameters)
        *self._weight_slopes, self._actor_slope, self._critic_slope, self.extra_gradient = self._parts(self.gradient)
        self._seen = inputs - privileged
        first, first_slope = (self._weights, self._weight_slopes) if hidden else ([[self._actor]], [[self._actor_slope]])
        self._first, self._unseen_slope = first[0][ACTOR], first_slope[0][ACTOR][self._seen : -1]
        self._initialize(generator)
        self._activations: list[Floats] = []
        self._slopes: list[Floats] = []

    def act(self, inputs: Floats) -> Floats:
        """Returns the actor's outputs (B, O) for inputs (B, D + 1) whose last column is 1, or for what it sees of them."""
        hidden = inputs[:, : self._seen]
        for weight in self._weights:
            hidden = np.tanh(hidden @ weight[ACTOR, : hidden.shape[1]] + weight[ACTOR, -1])
        outputs: Floats = hidden @ self._actor[: hidden.shape[1]] + self._actor[-1]
        return outputs

    def value(self, inputs: Floats) -> Floats:
        """Returns the critic's values (B,) for inputs (B, D + 1) whose last column is 1."""
        hidden = inputs[:, :-1]
        for weight in self._weights:
            hidden = np.tanh(hidden @ weight[CRITIC, :-1] + weight[CRITIC, -1])
        values: Floats = hidden @ self._critic[:-1, 0] + self._critic[-1, 0]
        return values

    def forward(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Returns outputs (B, O) and values (B,) for inputs (B, D + 1) whose last column is 1; `backward` may follow."""
        self._allocate(len(inputs))
        below = self._activations[0] = inputs[None]
        for weight, activation in zip(self._weights, self._activations[1:], strict=True):
            units = activation[..., :-1]
            np.matmul(below, weight, out=units)
            np.tanh(units, out=units)
            below = activation
        return below[ACTOR] @ self._actor, below[CRITIC] @ self._critic[:, 0]

    def backward(self, output_slopes: Floats, value_slopes: Floats) -> None:
        """Writes the gradient of a loss with these derivatives by outputs (B, O) and by values (B,); not that of `extra`."""
        top = self._activations[-1]
        np.matmul(top[ACTOR].T, output_slopes, out=self._actor_slope)
        np.matmul(top[CRITIC].T, value_slopes, out=self._critic_slope[:, 0])
        if self._weights:
            np.matmul(output_slopes, self._actor[:-1].T, out=self._slopes[-1][ACTOR])
            np.multiply(value_slopes[:, None], self._critic[:-1, 0], out=self._slopes[-1][CRITIC])
        for layer in reversed(range(len(self._weights))):
            slope, units = self._slopes[layer], self._activations[layer + 1][..., :-1]
            slope *= 1.0 - units * units  # derivative of tanh
            np.matmul(self._activations[layer].transpose(0, 2, 1), slope, out=self._weight_slopes[layer])
            if layer > 0:
                np.matmul(slope, self._weights[layer][:, :-1].transpose(0, 2, 1), out=self._slopes[layer - 1])
        self._unseen_slope[:] = 0.0

    def input_gradient(self, columns: int) -> Floats:
        """Returns the derivative (B, columns) of that loss by the first columns of the inputs; there must be a hidden layer."""
        by_towers = self._slopes[0] @ self._weights[0][:, :columns].transpose(0, 2, 1)
        gradient: Floats = by_towers[ACTOR] + by_towers[CRITIC]
        return gradient

    def _parts(self, flat: Floats) -> Iterator[Floats]:
        ends = np.cumsum([prod(shape) for shape in self._shapes])
        for shape, end in zip(self._shapes, ends, strict=True):
            yield flat[end - prod(shape) : end].reshape(shape)

    def _initialize(self, generator: np.random.Generator) -> None:
        for weight in self._weights:
            for tower in weight:
                tower[:-1] = orthogonal(*tower[:-1].shape, HIDDEN_GAIN, generator)
        self._actor[:-1] = orthogonal(*self._actor[:-1].shape, ACTOR_GAIN, generator)
        self._critic[:-1] = orthogonal(*self._critic[:-1].shape, CRITIC_GAIN, generator)
        if self._seen < self._sizes[0]:  # orthogonal in what is left
            gain = HIDDEN_GAIN if self._weights else ACTOR_GAIN
            self._first[: self._seen] = orthogonal(self._seen, self._first.shape[1], gain, generator)
            self._first[self._seen : -1] = 0.0

    def _allocate(self, rows: int) -> None:
        """Keeps the activations of a batch, each with a column of ones that meets the bias in the next layer's weight."""
        if self._activations and self._activations[0].shape[1] == rows:
            return
        self._activations = [np.ones((2, rows, size + 1), np.float32) for size in self._sizes]
        self._slopes = [np.empty((2, rows, size), np.float32) for size in self._sizes[1:]]


def orthogonal(rows: int, columns: int, gain: float, generator: np.random.Generator) -> Floats:
    """Returns a matrix with orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al. 2014)."""
    draws = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(draws)
    q *= np.sign(np.diag(r))  # makes the distribution uniform
    return (gain * (q if rows >= columns else q.T)).astype(np.float32)
