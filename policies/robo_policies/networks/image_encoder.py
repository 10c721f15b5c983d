"""Encoder of pictures that the critics train and the actor shares, with optionally frozen convolutions and random crops.

Random crops and the target of the convolutions are those of DrQ: Kostrikov, Yarats & Fergus 2021, "Image Augmentation Is All
You Need: Regularizing Deep Reinforcement Learning from Pixels", arXiv:2004.13649. B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robo_policies.networks.convolutions import ConvEncoder
from robo_policies.networks.encoders import Observations, TensorBatch
from robo_policies.networks.settings import Network
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class PictureNetwork(Network):
    """Settings group `network` of learners that train an encoder of pictures: convolutions, random crops, frozen weights."""

    sees = True
    convolutions: tuple[int, ...] = ()
    """Channels of the convolutions that read pictures, each of which halves height and width; none: pictures are not read.
    RLPD: 32, 64, 128, 256 for 64 pixels; DrQ: 32, 32, 32, 32 for 84 pixels."""
    crop_padding: int = 4
    """[pixel] largest random shift of the pictures of a batch; DrQ's for 84 pixels."""
    frozen_convolutions: str | None = None
    """File (safetensors) with weights of the convolutions, which are then not trained; the layers after them are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        frozen = self.frozen_convolutions is None or bool(self.convolutions)
        allowed = {
            "convolutions": (all(count >= 1 for count in self.convolutions), "1 or more channels in each layer"),
            "crop_padding": (self.crop_padding >= 0, "0 or more"),
            "frozen_convolutions": (frozen, "none without convolutions"),
        }
        self.require(allowed)

    def make_encoder(self, spec: EnvironmentSpec) -> Callable[[], nn.Module] | None:
        """Return a function that makes the encoder network, or None without convolutions: vectors are then read unchanged."""
        return partial(ImageEncoder, spec, self) if self.convolutions else None

    def augment(self, data: TensorBatch, pictures: Sequence[str], generator: torch.Generator) -> TensorBatch:
        """Return the batch with randomly shifted pictures (DrQ); observations and next observations have different shifts."""
        return randomly_shifted(data, pictures, self.crop_padding, generator)


class ImageEncoder(ConvEncoder):
    """`ConvEncoder` whose convolutions may be read from the file `frozen_convolutions`, and are then not trained."""

    def __init__(self, spec: EnvironmentSpec, settings: PictureNetwork) -> None:
        """Raise InvalidSetting if there is no picture, one too small for the layers, or a file that does not fit."""
        super().__init__(spec, settings.convolutions)
        if settings.frozen_convolutions is not None:
            self._freeze(settings.frozen_convolutions, settings.convolutions)

    def _freeze(self, path: str, channels: Sequence[int]) -> None:
        """Set the convolutions of every picture to the weights and biases of a file, and freeze them."""
        arrays = _weights(path, [next(tower.parameters()).shape[1] for tower in self.towers.values()], channels)
        for tower in self.towers.values():
            layers = [layer for layer in tower.children() if isinstance(layer, nn.Conv2d)]
            for layer, (weight, bias) in zip(layers, arrays, strict=True):
                layer.load_state_dict({"weight": weight, "bias": bias})
                layer.requires_grad_(requires_grad=False)


def _convolutions(tower: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in tower.children() if isinstance(layer, nn.Conv2d)]


def randomly_shifted(data: TensorBatch, pictures: Sequence[str], padding: int, generator: torch.Generator) -> TensorBatch:
    """Return a batch with pictures shifted by up to `padding` pixels in each direction.

    All pictures of a row have the same shift; observations and next observations have different ones. Shifts are drawn on
    the CPU, so that they are the same on all devices.
    """
    if not pictures:
        return data
    cropped = (_cropped(seen, pictures, padding, generator) for seen in (data.observations, data.next_observations))
    observations, following = cropped
    return replace(data, observations=observations, next_observations=following)


def _cropped(seen: Observations, pictures: Sequence[str], padding: int, generator: torch.Generator) -> Observations:
    assert isinstance(seen, dict)
    corners = torch.randint(2 * padding + 1, (len(seen[pictures[0]]), 2), generator=generator)
    return seen | {name: crop(seen[name], corners, padding) for name in pictures}


def crop(pictures: Tensor, corners: Tensor, padding: int) -> Tensor:
    """Return pictures padded by repeated edge pixels and cut back to their size at given corners.

    Args:
        pictures: (B, height, width, C).
        corners: (B, 2), row and column of the upper left corner in the padded picture; (padding, padding) is no shift.
        padding: Pixels added on every side.

    Returns:
        Shifted pictures (B, height, width, C).
    """
    height, width = pictures.shape[1:3]
    corners = corners.to(pictures.device, non_blocking=True) - padding
    rows = (corners[:, :1] + torch.arange(height, device=pictures.device)).clamp(0, height - 1)
    columns = (corners[:, 1:] + torch.arange(width, device=pictures.device)).clamp(0, width - 1)
    of_row = torch.arange(len(pictures), device=pictures.device)[:, None]
    return pictures[of_row, rows].transpose(1, 2)[of_row, columns].transpose(1, 2)


def _weights(path: str, depths: Sequence[int], channels: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return weight and bias of each layer, shared by all pictures; raises InvalidSetting if they do not fit."""
    wanted: dict[str, tuple[int, ...]] = {}
    for index, (before, after) in enumerate(pairwise((depths[0], *channels))):
        wanted |= {f"{index}.weight": (after, before, 3, 3), f"{index}.bias": (after,)}
    got: object = "no such file"
    if Path(path).is_file():
        try:
            arrays = load_file(path)
        except SafetensorError as error:
            arrays, got = {}, error
        else:
            got = {name: tuple(array.shape) for name, array in arrays.items()}
        if len({*depths}) == 1 and all(name in arrays and arrays[name].shape == shape for name, shape in wanted.items()):
            return [(arrays[f"{index}.weight"], arrays[f"{index}.bias"]) for index in range(len(channels))]
    raise InvalidSetting(
        f"The weights of frozen convolutions, {path}, do not fit.",
        got=got if len({*depths}) == 1 else f"pictures of {sorted({*depths})} channels",
        allowed=f"a safetensors file with {wanted}, and pictures of as many channels",
        fix="look at convolutions, and at how the file was written",
    )
