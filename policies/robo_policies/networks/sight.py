"""How a learner with hand-written derivatives sees pictures: convolutions whose features stand before its vectors, or nothing.

B rows, D columns of vectors with the column of ones, F features. The convolutions are PyTorch's, and so is their derivative:
unlike the small products after them, they fill a processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import conv2d, layer_norm, linear, relu

from robo_policies.networks.policy_value import HIDDEN_GAIN, Floats, orthogonal
from robo_rl.errors import InvalidSetting
from robo_rl.spec import ArraySpec, EnvironmentSpec
from robo_rl.types import Array

FEATURES = 64
"""Numbers that become of each picture."""
MOST_ROWS = 512
"""Rows whose activations are in memory at once: a picture of 96 x 96 x 6 and what becomes of it take half a megabyte."""


@dataclass(frozen=True)
class Views:
    """What is seen in B rows: vectors, and pictures that stay where they are until they are looked at."""

    vectors: Floats
    """(B, D); those of PPO have a last column of ones"""
    pictures: Mapping[str, Array]
    """name -> (M, height, width, channels) uint8, of more than these rows"""
    places: npt.NDArray[np.int64]
    """(B,) where in `pictures` those of each row are"""

    def __getitem__(self, index: Any) -> Views:
        return Views(self.vectors[index], self.pictures, self.places[index])

    def __len__(self) -> int:
        return len(self.vectors)


Seen = Floats | Views


class Sight(Protocol):
    """Turns what is seen into the inputs of networks."""

    features: int
    """F columns that it puts before the vectors."""
    parameters: int
    """Parameters that it learns."""
    most_rows: float
    """Rows whose derivative is taken at once; more are taken in parts."""

    def bind(self, parameters: Floats, gradient: Floats, generator: np.random.Generator) -> None:
        """Keeps its parameters, drawn from `generator`, and their gradient in these arrays from now on."""
        ...

    def look(self, seen: Any) -> Floats:
        """Returns inputs (B, F + D)."""
        ...

    def forward(self, seen: Any) -> Floats:
        """Returns inputs (B, F + D); `backward` may follow."""
        ...

    def backward(self, by_features: Floats) -> None:
        """Writes the gradient of something, given its derivative (B, F) by the features."""
        ...


class Blind:
    """There are no pictures: the vectors are the inputs."""

    features = parameters = 0
    most_rows = inf

    def bind(self, parameters: Floats, gradient: Floats, generator: np.random.Generator) -> None:
        """Keeps nothing."""

    def look(self, seen: Floats) -> Floats:
        """Returns the vectors."""
        return seen

    def forward(self, seen: Floats) -> Floats:
        """Returns the vectors."""
        return seen

    def backward(self, by_features: Floats) -> None:
        """Does nothing."""


class Convolutions:
    """Each picture goes through 3 x 3 convolutions that halve its sides, with ReLU, then one layer with LayerNorm and tanh.

    Actor and critic share them, as in CaRL, whose layers they follow; tanh keeps features in the range of scaled vectors, as in
    DrQ-v2 (Yarats et al. 2022). Several pictures share nothing, so that they may differ in size and channels.
    """

    most_rows = MOST_ROWS

    def __init__(self, pictures: Sequence[ArraySpec], channels: Sequence[int]) -> None:
        self._names = [picture.name for picture in pictures]
        self._shapes = [shape for picture in pictures for shape in _shapes(picture.shape, channels)]
        self._layers = len(channels)
        self.features = FEATURES * len(pictures)
        self.parameters = sum(prod(shape) for shape in self._shapes)
        self._arrays: list[Tensor] = []
        self._kept: Tensor | None = None

    def bind(self, parameters: Floats, gradient: Floats, generator: np.random.Generator) -> None:
        """Keeps its parameters, drawn from `generator`, and their gradient in these arrays from now on."""
        ends = np.cumsum([prod(shape) for shape in self._shapes])
        self._parts = [slice(int(end) - prod(shape), int(end)) for shape, end in zip(self._shapes, ends, strict=True)]
        parts = list(zip(self._shapes, self._parts, strict=True))
        for shape, part in parts:
            if len(shape) > 1:  # biases begin at 0
                parameters[part] = orthogonal(prod(shape[1:]), shape[0], HIDDEN_GAIN, generator).T.reshape(-1)
        self._arrays = [torch.from_numpy(parameters[part]).view(shape).requires_grad_() for shape, part in parts]
        self._gradients = [torch.from_numpy(gradient[part]).view(shape) for shape, part in parts]

    @property
    def learnt(self) -> list[slice]:
        """Where in the parameters those are that are not frozen."""
        return [part for part, array in zip(self._parts, self._arrays, strict=True) if array.requires_grad]

    def freeze(self, weights: Sequence[Array]) -> None:
        """Sets weights and biases of the convolutions, the same for every picture; no gradient is taken of them from now on."""
        each = len(self._arrays) // len(self._names)
        for start in range(0, len(self._arrays), each):
            for array, value in zip(self._arrays[start : start + each], weights, strict=False):  # all but the last layer
                array.requires_grad_(False).copy_(torch.from_numpy(value))

    def look(self, seen: Views) -> Floats:
        """Returns inputs (B, F + D), with some rows in memory at a time."""
        parts = (seen[start : start + MOST_ROWS] for start in range(0, len(seen), MOST_ROWS))
        with torch.no_grad():
            features = [self._features(part).numpy() for part in parts]
        return np.concatenate((np.concatenate(features), seen.vectors), axis=1)

    def forward(self, seen: Views) -> Floats:
        """Returns inputs (B, F + D); `backward` may follow."""
        self._kept = self._features(seen)
        return np.concatenate((self._kept.detach().numpy(), seen.vectors), axis=1)

    def backward(self, by_features: Floats) -> None:
        """Writes the gradient of something, given its derivative (B, F) by the features."""
        assert self._kept is not None
        learnt = [index for index, array in enumerate(self._arrays) if array.requires_grad]
        found = torch.autograd.grad(self._kept, [self._arrays[index] for index in learnt], torch.from_numpy(by_features))
        for index, value in zip(learnt, found, strict=True):
            self._gradients[index].copy_(value)
        self._kept = None

    def _features(self, seen: Views) -> Tensor:
        each = len(self._arrays) // len(self._names)
        starts = range(0, len(self._arrays), each)
        parts = [
            self._described(seen.pictures[name][seen.places], self._arrays[start : start + each])
            for name, start in zip(self._names, starts, strict=True)
        ]
        return torch.cat(parts, 1)

    def _described(self, pictures: Array, arrays: Sequence[Tensor]) -> Tensor:
        """Returns the features (B, FEATURES) of pictures (B, height, width, channels) uint8."""
        x = torch.from_numpy(pictures).permute(0, 3, 1, 2).float().mul_(1 / 255)  # the only place that scales them
        for layer in range(self._layers):
            x = relu(conv2d(x, arrays[2 * layer], arrays[2 * layer + 1], stride=2, padding=1))
        x = linear(x.flatten(1), arrays[-2], arrays[-1])
        return torch.tanh(layer_norm(x, (FEATURES,)))


def _shapes(picture: tuple[int, ...], channels: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the shapes of weights and biases for a picture (height, width, channels)."""
    height, width, depth = picture
    shapes: list[tuple[int, ...]] = []
    for before, after in pairwise((depth, *channels)):
        shapes += [(after, before, 3, 3), (after,)]
        height, width = (height + 1) // 2, (width + 1) // 2
    return [*shapes, (FEATURES, height * width * channels[-1]), (FEATURES,)]


def require_pictures(spec: EnvironmentSpec) -> tuple[ArraySpec, ...]:
    """Returns the pictures that convolutions are to see; raises InvalidSetting where there is none, or one that they cannot."""
    require_role(spec, "convolutions", "image")
    pictures = spec.observation.subset("image").arrays
    for picture in pictures:
        if picture.dtype != "uint8" or len(picture.shape) != 3:
            raise InvalidSetting(
                f"{picture.name!r} is not a picture that convolutions can see.",
                got=f"{picture.dtype}{list(picture.shape)}",
                allowed="uint8 (height, width, channels)",
            )
    return pictures


def require_role(spec: EnvironmentSpec, setting: str, role: str) -> None:
    """Raises InvalidSetting where a setting is about entries of a role, and there is none."""
    if not spec.observation.subset(role):
        raise InvalidSetting(
            f"{setting} is set, and {spec.name!r} has no {role} entry.",
            got=list(spec.observation),
            allowed=f"an entry of role {role}",
            fix=f"leave {setting} out, or look for an argument of the environment that adds one",
        )
