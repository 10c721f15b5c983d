"""Networks of the learners: observation encoder, tanh-Gaussian actor, ensemble of critics.

B batch, D encoded observation, A action elements, N critics. Layers start as torch.nn.Linear does, weights and biases
uniform in +-1 / sqrt(inputs), which is what Stable-Baselines3's SAC uses; they draw from a generator that is passed in,
never from the global one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.errors import InvalidSetting
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # limits of the authors' SAC code, as in Stable-Baselines3 and RLPD
SMALLEST_STD = 1e-2  # a measurement that hardly moves in the first data must not explode when it moves later
LARGEST_NORMALIZED = 10.0  # standard deviations; the usual limit of normalised observations (OpenAI Baselines)


class ObservationEncoder(nn.Module):
    """Concatenates the vectors that a deployed policy may see, in the order of the spec, and standardises them if asked to.

    Mean and standard deviation come from the first `normalization_rows` rows given to `fit` and stay constant afterwards,
    so that the meaning of the input does not drift under the critics. 0 rows: the input is used as it is.
    """

    mean: Tensor
    std: Tensor
    rows: Tensor

    def __init__(self, spec: EnvironmentSpec, normalization_rows: int = 0) -> None:
        super().__init__()
        vectors = spec.observation.vectors
        if not vectors:
            raise InvalidSetting(
                f"This learner reads vectors, and {spec.name!r} has none that a policy may see.",
                got=list(spec.observation),
                allowed="proprioception, object or goal entries",
            )
        self.names = tuple(vectors)
        self.size = sum(array.size for array in vectors.values())
        self._normalization_rows = normalization_rows
        self.register_buffer("mean", torch.zeros(self.size))
        self.register_buffer("std", torch.ones(self.size))
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def stack(self, observations: Mapping[str, Array]) -> Tensor:
        """Returns (B, D) float32, not yet standardised."""
        parts = [np.asarray(observations[name], np.float32) for name in self.names]
        flat = [part.reshape(len(part), -1) for part in parts]
        return torch.from_numpy(flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1))

    def write(self, observation: Mapping[str, Array], out: Array) -> None:
        """Writes one observation into (D,) without allocating."""
        start = 0
        for name in self.names:
            value = observation[name]
            stop = start + value.size
            out[start:stop] = value.reshape(-1)
            start = stop

    @torch.no_grad()
    def fit(self, stacked: Tensor) -> None:
        """Merges (B, D) into mean and standard deviation, until enough rows were seen (Chan et al. 1979)."""
        seen, new = int(self.rows), len(stacked)
        if seen >= self._normalization_rows:
            return
        difference = stacked.mean(0) - self.mean
        share = new / (seen + new)
        old_variance = self.std**2 if seen else torch.zeros_like(self.std)
        variance = (1 - share) * old_variance + share * stacked.var(0, correction=0) + share * (1 - share) * difference**2
        self.mean += share * difference
        self.std.copy_(variance.sqrt().clamp(min=SMALLEST_STD))
        self.rows += new

    def forward(self, stacked: Tensor) -> Tensor:
        """Returns (..., D), standardised where statistics exist."""
        if not self._normalization_rows:
            return stacked
        return ((stacked - self.mean) / self.std).clamp(-LARGEST_NORMALIZED, LARGEST_NORMALIZED)


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Returns a layer with torch's default initialisation, drawn from `generator`."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    bound = 1.0 / math.sqrt(inputs)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    assert isinstance(layer, nn.Linear)
    return layer


def mlp(sizes: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Returns linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs, generator), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class TanhGaussianActor(nn.Module):
    """a = tanh(u), u ~ Normal(mean(s), std(s)): a stochastic policy on (-1, 1)^A."""

    def __init__(self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.layers = mlp((inputs, *hidden, 2 * actions), generator)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log standard deviation of u, (B, A) each."""
        mean, log_std = self.layers(observations).chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Returns actions (B, A), differentiable in the parameters, and their log densities (B,)."""
        mean, log_std = self(observations)
        noise = torch.randn(mean.shape, generator=generator)
        unbounded = mean + log_std.exp() * noise
        return torch.tanh(unbounded), tanh_gaussian_log_density(unbounded, noise, log_std)

    def mode(self, observations: Tensor) -> Tensor:
        """Returns tanh of the mean, (B, A)."""
        return torch.tanh(self.layers(observations).chunk(2, dim=-1)[0])

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns actions (B, A) without their densities."""
        mean, log_std = self(observations)
        return torch.tanh(mean + log_std.exp() * torch.randn(mean.shape, generator=generator))


def tanh_gaussian_log_density(unbounded: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """Returns log pi(tanh u) summed over the last axis, for u = mean + exp(log_std) noise.

    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)) is exact and stays finite where tanh(u) rounds to 1.
    """
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2.0 * (math.log(2.0) - unbounded - functional.softplus(-2.0 * unbounded))
    return (gaussian - squash).sum(-1)


class QEnsemble(nn.Module):
    """N critics Q_i(s, a), evaluated together: parameters have the layout [N, in, out]."""

    def __init__(self, inputs: int, hidden: Sequence[int], critics: int, layer_norm: bool, generator: torch.Generator) -> None:
        super().__init__()
        sizes = (inputs, *hidden, 1)
        bounds = [1.0 / math.sqrt(size) for size in sizes[:-1]]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(critics, a, b).uniform_(-bound, bound, generator=generator))
            for (a, b), bound in zip(pairwise(sizes), bounds, strict=True)
        )
        self.biases = nn.ParameterList(
            nn.Parameter(torch.empty(critics, 1, b).uniform_(-bound, bound, generator=generator))
            for b, bound in zip(sizes[1:], bounds, strict=True)
        )
        normalized = hidden if layer_norm else ()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(critics, 1, b)) for b in normalized)
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(critics, 1, b)) for b in normalized)

    def forward(self, observations: Tensor, actions: Tensor, members: Tensor | None = None) -> Tensor:
        """Returns Q values (N, B), or (M, B) of the M critics whose indices `members` lists.

        One thread evaluates critic after critic, because then the activations of one stay in the cache (up to a quarter
        faster); more threads share out batched products. The values agree to rounding.
        """
        pairs = torch.cat((observations, actions), dim=-1)
        one_by_one = torch.get_num_threads() == 1
        return self.one_by_one(pairs, members) if one_by_one else self.batched(pairs, members)

    def batched(self, pairs: Tensor, members: Tensor | None = None) -> Tensor:
        """Returns (N, B) for pairs (B, D + A) by products over all critics at once."""
        layers = [[parameter if members is None else parameter[members] for parameter in layer] for layer in self._layers()]
        hidden = pairs.expand(len(layers[0][0]), *pairs.shape)
        for weight, bias, *scale_and_shift in layers:
            hidden = torch.baddbmm(bias, hidden, weight)
            if scale_and_shift:
                hidden = torch.addcmul(scale_and_shift[1], functional.layer_norm(hidden, hidden.shape[-1:]), scale_and_shift[0])
            if weight is not layers[-1][0]:
                hidden = functional.relu(hidden)
        return hidden.squeeze(-1)

    def one_by_one(self, pairs: Tensor, members: Tensor | None = None) -> Tensor:
        """Returns the same as `batched`, one critic after the other."""
        layers = [[parameter.unbind(0) for parameter in layer] for layer in self._layers()]
        values = []
        for member in range(len(layers[0][0])) if members is None else members.tolist():
            hidden = pairs
            for weights, biases, *scales_and_shifts in layers:
                hidden = torch.addmm(biases[member], hidden, weights[member])
                if scales_and_shifts:
                    scale, shift = (parameter[member].squeeze(0) for parameter in scales_and_shifts)
                    hidden = functional.layer_norm(hidden, hidden.shape[-1:], scale, shift)
                if weights is not layers[-1][0]:
                    hidden = functional.relu(hidden)
            values.append(hidden)
        return torch.cat(values, dim=-1).T

    def _layers(self) -> list[list[Tensor]]:
        """Returns weight and bias of each layer, and scale and shift where it is normalised."""
        normalized = [*zip(self.scales, self.shifts, strict=True)]
        plain = zip(self.weights, self.biases, strict=True)
        return [[*layer, *(normalized[index] if index < len(normalized) else ())] for index, layer in enumerate(plain)]
