"""Encoder of pictures for all learners: 3 x 3 convolutions, each of which halves height and width.

Layers are those of CaRL; tanh keeps features in the range of scaled vectors, as in DrQ-v2 (Yarats et al. 2022).
B rows, F features, D vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.errors import InvalidSetting
from robo_rl.requirements import require_role
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec

FEATURES = 64
"""Number of features of each picture."""
MOST_ROWS = 512
"""Largest number of rows that are encoded at once without a gradient, to save memory: 0.5 MB a row at 96 x 96 x 6."""


class ConvEncoder(nn.Module):
    """Encoder that describes each picture by features and appends the vectors unchanged.

    Pictures go through convolutions with ReLU and one layer with LayerNorm and tanh. Each picture has layers of its own, so
    pictures may differ in size and channels.
    """

    def __init__(self, spec: EnvironmentSpec, channels: Sequence[int]) -> None:
        """Raise InvalidSetting if there is no picture, or one too small for this number of layers."""
        super().__init__()
        pictures = require_pictures(spec, len(channels))
        self._vectors = spec.observation.vectors
        self.towers = nn.ModuleDict({picture.name: _tower(picture.shape, channels) for picture in pictures})
        self.size = FEATURES * len(pictures) + self._vectors.size

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return features (B, F + D) of uint8 pictures (B, height, width, channels) and vectors (B, ...)."""
        features = [self._encoded(tower, observations[name]) for name, tower in self.towers.items()]
        return torch.cat([*features, *(observations[name].flatten(1) for name in self._vectors)], 1)

    def _encoded(self, tower: nn.Module, pictures: Tensor) -> Tensor:
        rows = len(pictures) if torch.is_grad_enabled() else MOST_ROWS
        parts = [tower(part.permute(0, 3, 1, 2).float().mul_(1 / 255)) for part in pictures.split(rows)]
        return torch.tanh(functional.layer_norm(torch.cat(parts), (FEATURES,)))


def convolution_layers(shape: tuple[int, ...], channels: Sequence[int]) -> tuple[list[nn.Module], tuple[int, int, int]]:
    """Return convolutions for pictures of one shape, and the shape of their output.

    Args:
        shape: (height, width, channels) of a picture.
        channels: Output channels of each layer.

    Returns:
        The layers, and (channels, height, width) of the last one.
    """
    height, width, depth = shape
    layers: list[nn.Module] = []
    for before, after in pairwise((depth, *channels)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        height, width = (height + 1) // 2, (width + 1) // 2
    return layers, (channels[-1], height, width)


def _tower(shape: tuple[int, ...], channels: Sequence[int]) -> nn.Sequential:
    layers, (depth, height, width) = convolution_layers(shape, channels)
    tower = nn.Sequential(*layers, nn.Flatten(), nn.Linear(depth * height * width, FEATURES))
    for parameter in tower.parameters():
        if parameter.ndim > 1:
            nn.init.orthogonal_(parameter, gain=2**0.5)
        else:
            nn.init.zeros_(parameter)
    return tower


def require_pictures(spec: EnvironmentSpec, layers: int) -> tuple[ArraySpec, ...]:
    """Return the specs of all pictures, checked for a number of convolutions.

    Raises InvalidSetting if there is no picture, or one that is not uint8 (height, width, channels) or too small.
    """
    pictures, least = require_role(spec, "image", "convolutions").arrays, 2 ** (layers - 1) + 1
    for picture in pictures:
        if picture.dtype != "uint8" or len(picture.shape) != 3 or min(picture.shape[:2]) < least:
            raise InvalidSetting(
                f"{picture.name!r} is not a picture that convolutions can read; each halves its sides.",
                got=f"{picture.dtype}{list(picture.shape)}, {layers} convolutions",
                allowed=f"uint8 (height, width, channels) with {least} pixels or more on each side",
                fix="set fewer convolutions, or larger pictures if the environment has an argument for it (image_size)",
            )
    return pictures
