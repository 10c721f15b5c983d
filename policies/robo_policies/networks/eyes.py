"""What an actor-critic sees: vectors alone, or pictures, too, through convolutions that critics train and the actor shares.

Random crops and the target of the convolutions are those of DrQ: Kostrikov, Yarats & Fergus 2021, "Image Augmentation Is All
You Need: Regularizing Deep Reinforcement Learning from Pixels", arXiv:2004.13649. B rows, F features, D vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor

from robo_policies.learners.learning import EncodedBatch, Encoder
from robo_policies.networks.networks import ObservationEncoder
from robo_policies.networks.perceptrons import Floats
from robo_policies.networks.sight import Convolutions, Seen, Views, require_pictures
from robo_rl.errors import InvalidSetting
from robo_rl.spec import ArraySpec, EnvironmentSpec
from robo_rl.types import Array, Batch, StateDict


class Settings(Protocol):
    """What eyes need of a learner's settings; each field is described there."""

    convolutions: tuple[int, ...]
    crop_padding: int
    frozen_convolutions: str | None


class Eyes(Protocol):
    """Turns what is seen into the inputs of networks."""

    features: int
    """F columns that stand before the vectors."""
    learnt: Sequence[Tensor]
    """Parameters that the critics train."""
    gradients: Sequence[Tensor]
    """The derivatives by them that `backward` writes."""

    def encoder(self, vectors: ObservationEncoder) -> Encoder:
        """Returns what encodes a single observation for a policy, given what encodes its vectors."""
        ...

    def opened(self, batch: Batch, data: EncodedBatch) -> EncodedBatch:
        """Returns the vectors of a batch together with its pictures, randomly cropped."""
        ...

    def look(self, seen: Seen) -> Floats:
        """Returns inputs (B, F + D)."""
        ...

    def look_as_target(self, seen: Seen) -> Floats:
        """Returns inputs (B, F + D) of target critics."""
        ...

    def forward(self, seen: Seen) -> Floats:
        """Returns inputs (B, F + D); `backward` may follow."""
        ...

    def backward(self, by_features: Floats) -> None:
        """Writes the gradients of something, given its derivative (B, F) by the features."""
        ...

    def track(self, tau: float) -> None:
        """Moves the target towards what was learnt: target <- (1 - tau) target + tau learnt."""
        ...

    def state_dict(self) -> StateDict:
        """Returns convolutions, target and generator; nothing where there are none."""
        ...

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        ...


def eyes_of(spec: EnvironmentSpec, settings: Settings, seed: int) -> Eyes:
    """Returns eyes that see the pictures where convolutions are set; raises InvalidSetting where these cannot see them."""
    if not settings.convolutions:
        return ClosedEyes()
    pictures = require_pictures(spec)
    for picture in pictures:
        _require_size(picture, len(settings.convolutions))
    return OpenEyes(pictures, settings, seed)


class ClosedEyes:
    """The vectors are the inputs."""

    features = 0
    learnt: Sequence[Tensor] = ()
    gradients: Sequence[Tensor] = ()

    def encoder(self, vectors: ObservationEncoder) -> Encoder:
        """Returns what encodes vectors."""
        return vectors

    def opened(self, batch: Batch, data: EncodedBatch) -> EncodedBatch:
        """Returns the vectors."""
        return data

    def look(self, seen: Floats) -> Floats:
        """Returns the vectors."""
        return seen

    look_as_target = forward = look

    def backward(self, by_features: Floats) -> None:
        """Does nothing."""

    def track(self, tau: float) -> None:
        """Does nothing."""

    def state_dict(self) -> StateDict:
        """Returns nothing."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Does nothing."""


class OpenEyes:
    """Features of pictures stand before the vectors; what learns sees crops, what acts sees whole pictures."""

    def __init__(self, pictures: Sequence[ArraySpec], settings: Settings, seed: int) -> None:
        initial, self._generator = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        self._names = [picture.name for picture in pictures]
        self._padding = settings.crop_padding
        self._sight, self._target = (Convolutions(pictures, settings.convolutions) for _ in range(2))
        self.features = self._sight.features
        self.vector, self._target_vector, gradient = (torch.zeros(self._sight.parameters) for _ in range(3))
        self._sight.bind(self.vector.numpy(), gradient.numpy(), initial)
        self._target.bind(self._target_vector.numpy(), gradient.numpy(), initial)
        if settings.frozen_convolutions is not None:
            self._sight.freeze(_weights(settings.frozen_convolutions, pictures, settings.convolutions))
        self._target_vector.copy_(self.vector)
        self.learnt = [self.vector[part] for part in self._sight.learnt]
        self.gradients = [gradient[part] for part in self._sight.learnt]

    def encoder(self, vectors: ObservationEncoder) -> Encoder:
        """Returns what encodes a single observation, its pictures whole."""
        return SeeingEncoder(self._names, self._sight, self.vector, vectors)

    def opened(self, batch: Batch, data: EncodedBatch) -> EncodedBatch:
        """Returns the vectors of a batch together with its pictures, cropped anew for observations and next observations."""
        seen, following = (
            self._cropped(*each)
            for each in ((batch.observations, data.observations), (batch.next_observations, data.next_observations))
        )
        return replace(data, observations=seen, next_observations=following)

    def look(self, seen: Views) -> Floats:
        """Returns inputs (B, F + D)."""
        return self._sight.look(seen)

    def look_as_target(self, seen: Views) -> Floats:
        """Returns inputs (B, F + D) of target critics."""
        return self._target.look(seen)

    def forward(self, seen: Views) -> Floats:
        """Returns inputs (B, F + D); `backward` may follow."""
        return self._sight.forward(seen)

    def backward(self, by_features: Floats) -> None:
        """Writes `gradients` of something, given its derivative (B, F) by the features."""
        self._sight.backward(by_features)

    def track(self, tau: float) -> None:
        """Moves the target towards what was learnt."""
        self._target_vector.lerp_(self.vector, tau)

    def state_dict(self) -> StateDict:
        """Returns convolutions, target and the generator of crops."""
        convolutions = {"sight": self.vector.clone(), "target": self._target_vector.clone()}
        return convolutions | {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.vector.copy_(torch.as_tensor(state["sight"]))
        self._target_vector.copy_(torch.as_tensor(state["target"]))
        self._generator.bit_generator.state = state["generator"]

    def _cropped(self, observations: Mapping[str, Array], vectors: Floats) -> Views:
        corners = self._generator.integers(0, 2 * self._padding + 1, (len(vectors), 2))
        pictures = {name: cropped(observations[name], corners, self._padding) for name in self._names}
        return Views(vectors, pictures, np.arange(len(vectors)))


class SeeingEncoder:
    """Encodes an observation for a policy: features of its pictures, then its vectors as another encoder has them."""

    def __init__(self, names: Sequence[str], sight: Convolutions, vector: Tensor, vectors: ObservationEncoder) -> None:
        self._names, self._sight, self._vector, self._vectors = names, sight, vector, vectors
        self._features = sight.features
        self.size = self._features + vectors.size

    def reads(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return a spec with the pictures that it sees alone."""
        return spec.without_pictures(but=self._names)

    def write(self, observation: Mapping[str, Array], out: Array) -> None:
        """Writes one observation into (F + D,)."""
        pictures = {name: observation[name][None] for name in self._names}
        out[: self._features] = self._sight.look(Views(np.zeros((1, 0), np.float32), pictures, np.zeros(1, np.int64)))[0]
        self._vectors.write(observation, out[self._features :])

    def __call__(self, stacked: Tensor) -> Tensor:
        """Returns (..., F + D), the vectors standardised."""
        features, vectors = stacked[..., : self._features], stacked[..., self._features :]
        return torch.cat((features, self._vectors(vectors)), -1)

    def state_dict(self) -> StateDict:
        """Returns the convolutions and the state of the vectors' encoder."""
        return {**self._vectors.state_dict(), "sight": self._vector}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._vector.copy_(state["sight"])
        self._vectors.load_state_dict({name: value for name, value in state.items() if name != "sight"})


def cropped(pictures: Array, corners: npt.NDArray[np.int64], padding: int) -> Array:
    """Returns pictures (B, height, width, C), each cut from itself with its edges repeated `padding` times on every side.

    corners: (B, 2) row and column of the upper left corner in the larger picture; where both are `padding` it stays as it is.
    """
    height, width = pictures.shape[1:3]
    sides = (padding, padding)
    larger, result = np.pad(pictures, ((0, 0), sides, sides, (0, 0)), mode="edge"), np.empty_like(pictures)
    for row, (top, left) in enumerate(corners.tolist()):  # copies of rectangles; one index of all pixels takes longer
        result[row] = larger[row, top : top + height, left : left + width]
    return result


def _require_size(picture: ArraySpec, layers: int) -> None:
    least = 2 ** (layers - 1) + 1
    if min(picture.shape[:2]) < least:
        raise InvalidSetting(
            f"{picture.name!r} is too small for {layers} convolutions, which halve its sides.",
            got=f"{picture.shape[0]} x {picture.shape[1]} pixels",
            allowed=f"{least} pixels or more on each side, so that the last one still sees 2 x 2",
            fix="set fewer convolutions, or larger pictures where the environment has an argument for it (image_size)",
        )


def _weights(path: str, pictures: Sequence[ArraySpec], channels: Sequence[int]) -> list[Array]:
    """Returns weights and biases of each layer, by which every picture is seen; raises InvalidSetting where they do not fit."""
    depths = sorted({picture.shape[2] for picture in pictures})
    wanted: dict[str, tuple[int, ...]] = {}
    for index, (before, after) in enumerate(zip((depths[0], *channels), channels, strict=False)):
        wanted |= {f"{index}.weight": (after, before, 3, 3), f"{index}.bias": (after,)}
    got: object = "no such file"
    if Path(path).is_file():
        try:
            arrays = load_file(path)
        except SafetensorError as error:
            arrays, got = {}, error
        else:
            got = {name: array.shape for name, array in arrays.items()}
        if len(depths) == 1 and all(name in arrays and arrays[name].shape == shape for name, shape in wanted.items()):
            return [np.asarray(arrays[name], np.float32) for name in wanted]
    raise InvalidSetting(
        f"The weights of frozen convolutions, {path}, do not fit.",
        got=got if len(depths) == 1 else f"pictures of {depths} channels",
        allowed=f"a safetensors file with {wanted}, and pictures of as many channels",
        fix="look at convolutions, and at how the file was written",
    )
