"""Inputs of networks from batches: tensors on a device, standardised vectors, and an optional encoder network.

B batch, D elements of all vectors, F features that networks read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from robo_rl.errors import InvalidSetting
from robo_rl.requirements import require_finite_data
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch

SMALLEST_STD = 1e-2  # a measurement that hardly moves in the first data must not explode when it moves later
LARGEST_NORMALIZED = 10.0  # standard deviations; the usual limit of normalised observations (OpenAI Baselines)

Observations = Tensor | dict[str, Tensor]
"""All vectors side by side (B, D), or named tensors if an encoder network reads them."""


class ObservationEncoder(nn.Module):
    """Concatenates the vectors that a deployed policy may see, in the order of the spec, and optionally standardises them.

    Mean and standard deviation come from the first `normalization_rows` rows given to `fit` and stay constant afterwards, so
    that the meaning of the input does not drift under the critics. They stay on the CPU; an encoder network is on the device.
    """

    mean: Tensor
    std: Tensor
    rows: Tensor
    __call__: Callable[..., Tensor]

    def __init__(self, spec: EnvironmentSpec, normalization_rows: int = 0, network: nn.Module | None = None) -> None:
        super().__init__()
        vectors, pictures = spec.observation.vectors, spec.observation.subset("image")
        if not vectors and network is None:
            raise InvalidSetting(
                f"This learner reads vectors, and {spec.name!r} has none that a policy may see.",
                got=list(spec.observation),
                allowed="proprioception, object or goal entries",
            )
        self._vectors = vectors
        self._shapes = {name: array.shape for name, array in vectors.items()}
        self._sizes = [array.size for array in vectors.values()]
        self.pictures: tuple[str, ...] = () if network is None else tuple(getattr(network, "pictures", pictures))
        self.reads = (*self._shapes, *self.pictures)
        self.network = network
        self.size: int = sum(self._sizes) if network is None else int(network.size)  # type: ignore[arg-type]
        """F"""
        self._normalization_rows = normalization_rows
        self.register_buffer("mean", torch.zeros(sum(self._sizes)))
        self.register_buffer("std", torch.ones(sum(self._sizes)))
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def readable(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return a spec without the pictures that are not read."""
        return spec.without_pictures(but=self.pictures)

    def stack(self, observations: Mapping[str, Array]) -> Array:
        """Return the vectors (B, D) float32, not yet standardised."""
        return self._vectors.stack(observations)

    @torch.no_grad()
    def fit(self, stacked: Tensor) -> None:
        """Merge (B, D) into mean and standard deviation, until enough rows were seen (Chan et al. 1979)."""
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

    def tensors(self, stacked: Array, observations: Mapping[str, Array], device: torch.device) -> Observations:
        """Return vectors (B, D) and pictures as `forward` reads them, moved to a device."""
        vectors = torch.from_numpy(stacked)
        if self._normalization_rows:
            vectors = ((vectors - self.mean) / self.std).clamp(-LARGEST_NORMALIZED, LARGEST_NORMALIZED)
        vectors = to_device(vectors, device)
        if self.network is None:
            return vectors
        named = zip(self._shapes.items(), vectors.split(self._sizes, 1), strict=True)
        return {name: part.reshape(-1, *shape) for (name, shape), part in named} | {
            name: to_device(torch.from_numpy(np.ascontiguousarray(observations[name])), device) for name in self.pictures
        }

    def forward(self, observations: Observations) -> Tensor:
        """Return features (B, F)."""
        if isinstance(observations, Tensor):
            return observations
        assert self.network is not None
        features: Tensor = self.network(observations)
        return features


@dataclass(frozen=True)
class TensorBatch:
    """A batch as tensors on the learner's device; on a CPU they share memory with it."""

    observations: Observations
    actions: Tensor
    rewards: Tensor
    masks: Tensor
    discounts: Tensor
    next_observations: Observations
    weights: Tensor
    extras: dict[str, Tensor]

    @classmethod
    def of(cls, batch: Batch, encoder: ObservationEncoder, device: torch.device, update: int) -> TensorBatch:
        """Return the batch, standardised by the encoder; raises NonFiniteUpdate if it holds NaN or infinity."""
        stacked, following = encoder.stack(batch.observations), encoder.stack(batch.next_observations)
        plain = {name: getattr(batch, name) for name in ("actions", "rewards", "masks", "discounts", "weights")}
        require_finite_data({"observations": stacked, "next_observations": following} | plain, update)
        encoder.fit(torch.from_numpy(stacked))
        return cls(
            observations=encoder.tensors(stacked, batch.observations, device),
            next_observations=encoder.tensors(following, batch.next_observations, device),
            extras={name: to_device(torch.from_numpy(value), device) for name, value in batch.extras.items()},
            **{name: to_device(torch.from_numpy(value), device) for name, value in plain.items()},
        )

    def __len__(self) -> int:
        return len(self.rewards)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU tensor on a device, through pinned memory to CUDA so that the transfer is asynchronous."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
