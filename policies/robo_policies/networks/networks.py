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
import numpy.typing as npt
import torch
from torch import Tensor, nn

from robo_policies.networks.perceptrons import Floats, Perceptrons
from robo_rl.errors import InvalidSetting
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array, StateDict

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

    def reads(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return a spec without its pictures."""
        return spec.without_pictures()

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


class TanhGaussianActor:
    """a = tanh(u), u ~ Normal(mean(s), std(s)): a stochastic policy on (-1, 1)^A."""

    def __init__(
        self,
        inputs: int,
        actions: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = Perceptrons(1, (inputs, *hidden, 2 * actions), False, generator, dtype)
        self._kept: tuple[Floats, Floats, npt.NDArray[np.bool_]] | None = None

    def distribution(self, observations: Floats, *, keep: bool = False) -> tuple[Floats, Floats]:
        """Returns mean and log standard deviation of u, (B, A) each, the latter not yet limited."""
        outputs = self.network.forward(observations, keep=keep)[0]
        actions = outputs.shape[1] // 2
        return outputs[:, :actions], outputs[:, actions:]

    def sample(self, observations: Floats, generator: torch.Generator, *, keep: bool = False) -> tuple[Floats, Floats]:
        """Returns actions (B, A) and their log densities (B,); with `keep`, `backward` can follow."""
        mean, raw = self.distribution(observations, keep=keep)
        log_std = _limited(raw)
        noise = torch.randn(mean.shape, generator=generator).numpy()
        deviation = np.exp(log_std) * noise
        unbounded = mean + deviation
        actions = np.tanh(unbounded)
        if keep:
            self._kept = actions, deviation, raw == log_std
        return actions, tanh_gaussian_log_density(unbounded, noise, log_std)

    def backward(self, by_actions: Floats, by_log_densities: Floats) -> None:
        """Writes `network.gradient` of something, given its derivatives by the kept actions (B, A) and log densities (B,)."""
        assert self._kept is not None
        actions, deviation, is_inside = self._kept
        by_log_densities = by_log_densities[:, None]
        # u = mean + std noise: da/du = 1 - a^2 and d log pi/du = 2 a; besides, log pi falls by log std
        by_mean = by_actions * (1 - actions**2) + by_log_densities * (2 * actions)
        by_log_std = (by_mean * deviation - by_log_densities) * is_inside
        self.network.backward(np.concatenate((by_mean, by_log_std), axis=1)[None])

    def mode(self, observations: Tensor) -> Tensor:
        """Returns tanh of the mean, (B, A)."""
        return torch.from_numpy(np.tanh(self.distribution(observations.numpy())[0]))

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns actions (B, A) without their densities."""
        mean, raw = self.distribution(observations.numpy())
        noise = torch.randn(mean.shape, generator=generator).numpy()
        return torch.from_numpy(np.tanh(mean + np.exp(_limited(raw)) * noise))

    def state_dict(self) -> StateDict:
        """Returns the parameters by name."""
        return self.network.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.network.load_state_dict(state)


def _limited(log_std: Floats) -> Floats:
    # two plain functions: numpy's clip takes three times as long on so small an array
    limited: Floats = np.minimum(np.maximum(log_std, LOG_STD_MIN), LOG_STD_MAX)
    return limited


def tanh_gaussian_log_density(unbounded: Floats, noise: Floats, log_std: Floats) -> Floats:
    """Returns log pi(tanh u) summed over the last axis, for u = mean + exp(log_std) noise.

    log(1 - tanh(u)^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|))) is exact and stays finite where tanh(u) rounds to 1.
    """
    size = np.abs(unbounded)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2.0 * (math.log(2.0) - size - np.log1p(np.exp(-2.0 * size)))
    density: Floats = (gaussian - squash).sum(-1)
    return density


class QEnsemble:
    """N critics Q_i(s, a), evaluated together."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        critics: int,
        layer_norm: bool,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = Perceptrons(critics, (inputs, *hidden, 1), layer_norm, generator, dtype)

    def values(self, observations: Floats, actions: Floats, *, keep: bool = False) -> Floats:
        """Returns Q values (N, B); with `keep`, `backward` and `action_gradient` can follow."""
        return self.network.forward(observations, actions, keep=keep)[:, :, 0]

    def values_of(self, members: Sequence[int], observations: Floats, actions: Floats) -> Floats:
        """Returns Q values (M, B) of some critics."""
        return self.network.forward_some(members, observations, actions)[:, :, 0]

    def backward(self, by_values: Floats) -> None:
        """Writes `network.gradient` of something, given its derivative (N, B) by the kept values."""
        self.network.backward(by_values[:, :, None])

    def action_gradient(self, by_values: Floats, actions: int) -> Floats:
        """Returns the derivative (B, A) of something by the actions, given that (N, B) by the kept values."""
        inputs = self.network.layers[0].weight.shape[1]
        return self.network.input_gradient(by_values[:, :, None], slice(inputs - actions, inputs))

    def feature_gradient(self, by_values: Floats, features: int) -> Floats:
        """Returns the derivative (B, F) of something by the first inputs, given that (N, B) by the kept values."""
        return self.network.input_gradient(by_values[:, :, None], slice(0, features))

    def state_dict(self) -> StateDict:
        """Returns the parameters by name."""
        return self.network.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.network.load_state_dict(state)
