"""Inputs of networks from batches: tensors on a device, standardised vectors, and an optional encoder network.

B batch, D elements of all vectors, F features that networks read, P privileged elements that critics alone read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from robo_rl.requirements import require_finite_data, require_role, require_vectors
from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec
from robo_rl.types import Array, Batch

SMALLEST_STD = 1e-2  # a measurement that hardly moves in the first data must not explode when it moves later
LARGEST_NORMALIZED = 10.0  # standard deviations; the usual limit of normalised observations (OpenAI Baselines)

Observations = Tensor | dict[str, Tensor]
"""All vectors concatenated, (B, D) or (B, D + P); or named tensors (B, ...) if an encoder network reads them."""


class ObservationEncoder(nn.Module):
    """Turns observations into the inputs of actor and critics; every learner has one.

    Mean and standard deviation come from the first `normalization_rows` rows given to `fit` and stay constant afterwards, so
    that the meaning of the input does not drift under the critics. They stay on the CPU; an encoder network is on the device.
    A network with the attribute `is_in_units` gets the vectors as they are.
    """

    mean: Tensor
    std: Tensor
    rows: Tensor
    __call__: Callable[..., Tensor]

    def __init__(
        self, spec: EnvironmentSpec, normalization_rows: int = 0, network: nn.Module | None = None, is_asymmetric: bool = False
    ) -> None:
        """Make the encoder of an environment.

        Args:
            spec: The environment's spec.
            normalization_rows: Rows from which mean and deviation are computed; 0: vectors are not standardised.
            network: Encoder network that reads named tensors; None: the features are the vectors.
            is_asymmetric: True if critics also read privileged entries.

        Raises:
            InvalidSetting: There is no entry to read, or no privileged one although `is_asymmetric` is True.
        """
        super().__init__()
        vectors, pictures = spec.observation.vectors, spec.observation.subset("image")
        self._visible = require_vectors(spec) if network is None else vectors
        privileged = require_role(spec, "privileged", "privileged_critic").arrays if is_asymmetric else ()
        self._learnt = ObservationSpec((*self._visible.arrays, *privileged))
        self.pictures: tuple[str, ...] = () if network is None else tuple(getattr(network, "pictures", pictures))
        self.reads = (*self._visible, *self.pictures)
        self.network = network
        self.size: int = self._visible.size if network is None else int(network.size)  # type: ignore[arg-type]
        """F, number of features that the actor reads."""
        self.critic_size = self.size + self._learnt.size - self._visible.size
        """F + P"""
        self._normalization_rows = 0 if getattr(network, "is_in_units", False) else normalization_rows
        self.register_buffer("mean", torch.zeros(self._learnt.size))
        self.register_buffer("std", torch.ones(self._learnt.size))
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def readable(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the environment's spec without the pictures that this encoder does not read."""
        return spec.without_pictures(but=self.pictures)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that `stack` returns."""
        return self._learnt.columns

    def stack(self, observations: Mapping[str, Array], *, is_acting: bool = False) -> Array:
        """Concatenate the vectors of observations to (B, D + P) float32, not standardised.

        If `is_acting` without privileged ones.
        """
        return (self._visible if is_acting else self._learnt).stack(observations)

    @torch.no_grad()
    def fit(self, stacked: Tensor) -> None:
        """Update mean and standard deviation with rows (B, D + P), until `normalization_rows` were seen (Chan et al. 1979)."""
        seen, new = int(self.rows), len(stacked)
        if seen >= self._normalization_rows or not stacked.shape[1]:  # pictures alone
            return
        difference = stacked.mean(0) - self.mean
        share = new / (seen + new)
        old_variance = self.std**2 if seen else torch.zeros_like(self.std)
        variance = (1 - share) * old_variance + share * stacked.var(0, correction=0) + share * (1 - share) * difference**2
        self.mean += share * difference
        self.std.copy_(variance.sqrt().clamp(min=SMALLEST_STD))
        self.rows += new

    def tensors(self, stacked: Array, observations: Mapping[str, Array], device: torch.device) -> Observations:
        """Make the input of `forward`, on a device: standardised vectors, and pictures if an encoder network reads them.

        Args:
            stacked: Vectors (B, D) or (B, D + P) as `stack` returns them; they are standardised here.
            observations: Entries (B, ...) by name, for the pictures.
            device: Device of the result.
        """
        vectors = to_device(self._standardised(torch.from_numpy(stacked)), device)
        if self.network is None:
            return vectors
        return self._named(vectors) | {
            name: to_device(torch.from_numpy(np.ascontiguousarray(observations[name])), device) for name in self.pictures
        }

    def seen(self, observations: Mapping[str, Tensor]) -> Observations:
        """Make the input of `forward` from named tensors (B, ...) without privileged entries; exported policies use it."""
        flat = [observations[name].float().flatten(1) for name in self._visible]
        vectors = self._standardised(torch.cat(flat, 1)) if flat else torch.zeros((1, 0))
        return vectors if self.network is None else self._named(vectors) | {name: observations[name] for name in self.pictures}

    def _standardised(self, vectors: Tensor) -> Tensor:
        """Return vectors (B, D) or (B, D + P) standardised and clipped, or unchanged without normalisation."""
        if not self._normalization_rows:
            return vectors
        mean, std = (each[: vectors.shape[1]] for each in (self.mean, self.std))
        return ((vectors - mean) / std).clamp(-LARGEST_NORMALIZED, LARGEST_NORMALIZED)

    def _named(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return name -> tensor (B, *shape), cut out of concatenated vectors."""
        arrays = (self._learnt if vectors.shape[1] > self._visible.size else self._visible).arrays
        parts = zip(arrays, vectors.split([array.size for array in arrays], 1), strict=True)
        return {array.name: part.reshape(-1, *array.shape) for array, part in parts}

    def forward(self, observations: Observations) -> Tensor:
        """Encode observations that `tensors` or `seen` prepared: features (B, F), with privileged elements (B, F + P)."""
        if isinstance(observations, Tensor):
            return observations
        assert self.network is not None
        read = {name: observations[name] for name in self.reads}
        privileged = (values.flatten(1) for name, values in observations.items() if name not in read)
        return torch.cat((self.network(read), *privileged), 1)


@dataclass(frozen=True)
class TensorBatch:
    """A `Batch` of B transitions as tensors on the learner's device; on a CPU they share memory with the batch.

    Rewards, masks (0 if the task ended at this step), discounts and weights are (B,), actions (B, A) or (B,).
    """

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
        """Return a batch with observations standardised by the encoder.

        Args:
            batch: Sampled transitions.
            encoder: Encoder of observations; its mean and deviation are updated first.
            device: Device of the tensors.
            update: Number of the update, for the error.

        Raises:
            NonFiniteUpdate: The batch has a NaN or infinite number.
        """
        stacked, following = encoder.stack(batch.observations), encoder.stack(batch.next_observations)
        plain = {name: getattr(batch, name) for name in ("actions", "rewards", "masks", "discounts", "weights")}
        given = {"observations": stacked, "next_observations": following} | plain
        require_finite_data(given, update, columns=encoder.columns)
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
    """Return a CPU tensor on a device; the transfer to CUDA is asynchronous, through pinned memory."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
