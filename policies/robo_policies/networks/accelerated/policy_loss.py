"""Gradient of PPO's loss for two MLPs with tanh, computed in NumPy on the memory of the PyTorch parameters.

With 64 rows and 64 units the overhead of an operation of PyTorch takes longer than its arithmetic, and that of autograd several
times as long. B rows, O outputs of the actor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robo_policies.networks.policy_value import HALF_LOG_TAU, Floats, PolicyValue

Losses = tuple[Tensor, Tensor, Tensor]
"""PPO's loss, the ratio pi/pi_old and the loss of the value of each row, each (B,)."""
Slopes = tuple[Tensor, Tensor, Floats, Floats]
"""Ratios pi/pi_old (B,), value losses (B,), and the gradients of the loss by the outputs (B, O) and by the values (B,)."""
Pair = Any
"""An array of the actor and one of the critic: one array (2, ...) if their shapes are equal, else a tuple of two."""
ACTOR, CRITIC = 0, -1  # first and last of two; of inputs that both share, the only one
TRUNKS = ("actor_trunk", "critic_trunk")
LARGEST = np.float32(20.0)  # logarithm of a ratio, as in the reference


class PolicyLoss:
    """Computes the gradient of PPO's loss for plain MLPs on the CPU, in NumPy.

    The loss is minus the mean of `PPO.objective`. The parameters of `networks` must be views of the tensor `flat`, in their
    order.
    """

    def __init__(self, networks: PolicyValue, flat: Tensor, objective: Callable[..., Losses], config: Any) -> None:
        self._seen, self._objective = networks.seen, objective
        self._reads_alike = networks.inputs == networks.seen
        self._lowest, self._highest = np.float32(1.0 - config.clip_range), np.float32(1.0 + config.clip_range)
        self._value_share, self._entropy_share = np.float32(config.value_coefficient), np.float32(config.entropy_coefficient)
        self._gradient, parameters = torch.zeros_like(flat), dict(networks.named_parameters())
        parts = self._gradient.split_with_sizes([each.numel() for each in parameters.values()])
        slopes = {name: part.view(each.shape) for (name, each), part in zip(parameters.items(), parts, strict=True)}
        arrays = [{name: each.detach().numpy() for name, each in found.items()} for found in (parameters, slopes)]
        layers = range(len(config.network.hidden))
        (self._weights, self._weight_slopes), (self._biases, self._bias_slopes) = (
            [[_pair([found[f"{trunk}.{kind}{layer}"] for trunk in TRUNKS]) for layer in layers] for found in arrays]
            for kind in ("weight", "bias")
        )
        heads = ("actor_weight", "actor_bias", "critic_weight", "critic_bias")
        (self._actor, self._actor_bias, self._critic, self._critic_bias), self._head_slopes = (
            [found[name] for name in heads] for found in arrays
        )
        self._log_std, self._log_std_slope = (found.get("distribution.log_std") for found in arrays)
        encoder = [name for name in parameters if "encoder." in name]
        self._encoder, self._encoder_slopes = [parameters[name] for name in encoder], [slopes[name] for name in encoder]
        self._units: list[Pair] = []
        self._slopes: list[Pair] = []
        self._ones = np.ones(0, np.float32)

    def gradient(self, inputs: Tensor, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradient of the loss on one minibatch.

        Args:
            inputs: Inputs of the critic (B, F + P), those of the actor first.
            rows: Actions, old log densities, returns and advantages of the minibatch.

        Returns:
            Gradient with the layout of `flat`, which the next call overwrites; ratios (B,); value losses (B,).
        """
        ratio, value_losses, by_inputs = self._differentiate(inputs, rows)
        if by_inputs is not None:
            found = torch.autograd.grad(inputs, self._encoder, by_inputs, allow_unused=True, materialize_grads=True)
            torch._foreach_copy_(self._encoder_slopes, found)
        return self._gradient, ratio, value_losses

    def heads(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the actor's outputs (B, O) and the critic's values (B,) for inputs (B, F + P), without a gradient."""
        outputs, values = self._forward(inputs.detach().numpy())
        return torch.from_numpy(outputs), torch.from_numpy(values)

    def act(self, features: Tensor) -> Tensor:
        """Compute the actor's outputs (B, O) for features (B, F), without a gradient."""
        x = features.detach().numpy()
        for weight, bias in zip(self._weights, self._biases, strict=True):
            x = np.tanh(x @ weight[ACTOR] + bias[ACTOR])
        return torch.from_numpy(x @ self._actor + self._actor_bias)

    def _forward(self, inputs: Floats) -> tuple[Floats, Floats]:
        self._allocate(inputs)
        for below, weight, bias, units in zip(self._units, self._weights, self._biases, self._units[1:], strict=False):
            _multiply(below, weight, out=units)
            np.add(units, bias[:, None], out=units)
            np.tanh(units, out=units)
        top = self._units[-1]
        return top[ACTOR] @ self._actor + self._actor_bias, top[CRITIC] @ self._critic[:, 0] + self._critic_bias

    def _differentiate(self, inputs: Tensor, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Write the gradients of the parameters; return ratios, value losses, and the gradient of the inputs or None."""
        outputs, values = self._forward(inputs.detach().numpy())
        derivatives = self._by_autograd if self._log_std is None else self._by_hand
        ratio, value_losses, by_outputs, by_values = derivatives(outputs, values, rows)
        top, slope, by_value = self._units[-1], self._slopes[-1], by_values[:, None]
        actor, actor_bias, critic, critic_bias = self._head_slopes
        np.matmul(top[ACTOR].T, by_outputs, out=actor)
        np.matmul(top[CRITIC].T, by_value, out=critic)
        np.add.reduce(by_outputs, 0, out=actor_bias)
        np.add.reduce(by_value, 0, out=critic_bias)
        np.matmul(by_outputs, self._actor.T, out=slope[ACTOR])
        np.multiply(by_value, self._critic[:, 0], out=slope[CRITIC])
        for layer in reversed(range(len(self._weights))):
            slope, units = self._slopes[layer + 1], self._units[layer + 1]
            np.multiply(units, units, out=units)  # not read again
            slope *= np.subtract(np.float32(1.0), units, out=units)  # derivative of tanh
            _multiply(_transposed(self._units[layer]), slope, out=self._weight_slopes[layer])
            np.matmul(self._ones, slope, out=self._bias_slopes[layer])
            if layer > 0 or inputs.requires_grad:
                _multiply(slope, _transposed(self._weights[layer]), out=self._slopes[layer])
        if not inputs.requires_grad:
            return ratio, value_losses, None
        by_actor, by_critic = self._slopes[0]
        by_critic[:, : self._seen] += by_actor
        return ratio, value_losses, torch.from_numpy(by_critic)

    def _by_hand(self, outputs: Floats, values: Floats, rows: Sequence[Tensor]) -> Slopes:
        """Differentiate for a Gaussian, log std included.

        d surrogate / d log pi is r A, or 0 if clipping took the gain away; d log pi / d mean is score / std, and by log std
        score^2 - 1.
        """
        actions, old, returns, advantages = (each.numpy() for each in rows)
        log_std, share = self._log_std, np.float32(1.0 / len(values))
        assert log_std is not None
        inverse_std = np.exp(-log_std)
        scores = (actions - outputs) * inverse_std
        log_ratio = np.einsum("ba,ba->b", scores, scores) * np.float32(-0.5) - old
        log_ratio -= np.add.reduce(log_std) + np.float32(len(log_std) * HALF_LOG_TAU)
        ratio = np.exp(np.minimum(log_ratio, LARGEST))
        gains = ratio * advantages
        clipped = np.minimum(np.maximum(ratio, self._lowest), self._highest) * advantages
        weighted = gains * (gains <= clipped)
        weighted *= -share
        by_scores = scores * weighted[:, None]
        np.einsum("ba,ba->a", by_scores, scores, out=self._log_std_slope)
        self._log_std_slope -= np.add.reduce(weighted) + self._entropy_share
        errors = values - returns
        by_values = (np.float32(2.0) * self._value_share * share) * errors
        by_scores *= inverse_std
        return torch.from_numpy(ratio), torch.from_numpy(errors * errors), by_scores, by_values

    def _by_autograd(self, outputs: Floats, values: Floats, rows: Sequence[Tensor]) -> Slopes:
        """Differentiate the objective by autograd, for other distributions."""
        with torch.enable_grad():
            leaves = [torch.from_numpy(each).requires_grad_() for each in (outputs, values)]
            objective, ratio, value_losses = self._objective(*leaves, *rows)
            by_outputs, by_values = (each.numpy() for each in torch.autograd.grad(-objective.mean(), leaves))
        return ratio, value_losses, by_outputs, by_values

    def _allocate(self, inputs: Floats) -> None:
        """Allocate arrays for activations and their gradients; minibatches of equal size reuse them."""
        rows = len(inputs)
        if len(self._ones) != rows:
            self._ones = np.ones(rows, np.float32)
            hidden = [(2, rows, bias.shape[-1]) for bias in self._biases]
            seen, whole = (np.empty((2, rows, size), np.float32) for size in (self._seen, inputs.shape[1]))
            below: Pair = whole if self._reads_alike else (seen[ACTOR], whole[CRITIC])
            self._units, self._slopes = ([below, *(np.empty(shape, np.float32) for shape in hidden)] for _ in range(2))
        self._units[0] = inputs[None] if self._reads_alike else (inputs[:, : self._seen], inputs)


def _pair(arrays: Sequence[Floats]) -> Pair:
    """Return the arrays of actor and critic, two parts of one flat tensor, as one view (2, ...) if their shapes are equal."""
    first, second = arrays
    if first.shape != second.shape:
        return first, second
    distance = second.ctypes.data - first.ctypes.data
    return np.lib.stride_tricks.as_strided(first, (2, *first.shape), (distance, *first.strides))


def _multiply(left: Pair, right: Pair, out: Pair) -> None:
    """Write the matrix products of both networks, in one call if they have equal shapes."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and isinstance(out, np.ndarray):
        np.matmul(left, right, out=out)
    else:
        for x, y, product in zip(left, right, out, strict=True):
            np.matmul(x, y, out=product)


def _transposed(pair: Pair) -> Pair:
    return pair.transpose(0, 2, 1) if isinstance(pair, np.ndarray) else (pair[ACTOR].T, pair[CRITIC].T)
