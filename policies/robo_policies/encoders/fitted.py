"""Frozen encoder of pictures, fitted to objects and goals that a simulator knows.

B pictures, T targets: entries of the observation that pictures are to replace, standardised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.networks.convolutions import convolution_layers
from robo_policies.networks.settings import resolve_device
from robo_rl.errors import InvalidSetting, printable
from robo_rl.spec.environment import ArraySpec
from robo_rl.system.durable_files import write_durably

FORMAT = 1
HALVING = (16, 32)
"""Channels of the convolutions that halve each side."""
KEEPING = (32, 32)
"""Channels of the convolutions after them."""
FEATURES = 64


class KeypointNetwork(nn.Module):
    """Convolutions, spatial soft-argmax and two layers: features (B, FEATURES) in [-1, 1], then targets (B, T).

    Soft-argmax is the mean position of each channel's activation, as in Levine et al. 2016, "End-to-End Training
    of Deep Visuomotor Policies", arXiv:1504.00702; it keeps positions that pooling would lose.
    """

    places: Tensor

    def __init__(self, shape: tuple[int, ...], targets: int) -> None:
        super().__init__()
        layers, (depth, height, width) = convolution_layers(shape, HALVING)
        for count in KEEPING:
            layers += [nn.Conv2d(depth, count, 3, padding=1), nn.ReLU()]
            depth = count
        self.convolutions = nn.Sequential(*layers[:-1])  # soft-argmax reads values of both signs
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
        self.register_buffer("places", torch.stack((rows.ravel(), columns.ravel()), 1), persistent=False)
        self.sharpness = nn.Parameter(torch.ones(()))
        self.hidden = nn.Linear(3 * depth, FEATURES)
        self.head = nn.Linear(FEATURES + 3 * depth, targets)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and targets of uint8 pictures (B, H, W, C)."""
        maps = self.convolutions(pictures.permute(0, 3, 1, 2).float().mul_(1 / 255).sub_(0.5)).flatten(2)
        maps = self.sharpness * functional.layer_norm(
            maps, maps.shape[-1:]
        )  # else maps that are flat at first stay so for long
        weights = functional.softmax(maps, -1)
        keypoints = torch.cat(((weights @ self.places).flatten(1), (weights * maps).sum(-1)), 1)
        features = torch.tanh(self.hidden(keypoints))
        return features, self.head(torch.cat((features, keypoints), 1))


class FittedEncoder:
    """Encoder of one or several cameras, read from the folder of `robo-rl fit-encoder`."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        """Raise InvalidSetting if the folder holds no encoder, or there is no such device."""
        self._folder, self._device = Path(folder), resolve_device(device)
        description = _description(self._folder)
        self._targets: int = description["targets"]
        self._shapes: dict[str, tuple[int, ...]] = {name: tuple(shape) for name, shape in description["cameras"].items()}
        digest, self._networks = hashlib.sha256(), {}
        for name, shape in self._shapes.items():
            network, path = KeypointNetwork(shape, self._targets), self._folder / f"{name}.safetensors"
            try:
                network.load_state_dict(load_file(path))
            except (OSError, RuntimeError, SafetensorError) as error:
                raise InvalidSetting("Weights of an encoder cannot be read.", got=f"{path}: {error}") from error
            digest.update(path.read_bytes())
            self._networks[name] = network.requires_grad_(requires_grad=False).to(self._device)
        self.digest = digest.hexdigest()[:12]

    def sizes(self, pictures: Mapping[str, ArraySpec]) -> dict[str, int]:
        """Return name -> FEATURES + T; raises InvalidSetting for an unknown camera or another size."""
        for name, array in pictures.items():
            if array.shape != self._shapes.get(name):
                raise InvalidSetting(
                    f"The encoder {self._folder} was not fitted to this picture.",
                    got=f"{name} {list(array.shape)}",
                    allowed=", ".join(f"{camera} {list(shape)}" for camera, shape in self._shapes.items()),
                    fix="set cameras and image_size as they were in its fit, or fit another encoder",
                )
        return dict.fromkeys(pictures, FEATURES + self._targets)

    @torch.no_grad()
    def encode(self, name: str, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return features and estimated targets (B, FEATURES + T) of pictures (B, H, W, C)."""
        encoded = torch.cat(self._networks[name](torch.as_tensor(pictures, device=self._device)), 1)
        values: npt.NDArray[np.float32] = encoded.cpu().numpy()
        return values


def save_encoder(
    folder: Path, networks: Mapping[str, tuple[KeypointNetwork, tuple[int, ...]]], facts: Mapping[str, Any]
) -> None:
    """Write camera -> network and shape of its pictures; the description comes last, so that a torn folder is no encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (network, _) in networks.items():
        save_file({key: value.contiguous() for key, value in network.state_dict().items()}, folder / f"{name}.safetensors")
    targets = next(iter(networks.values()))[0].head.out_features
    cameras = {name: list(shape) for name, (_, shape) in networks.items()}
    description = {"format": FORMAT, "targets": targets, "cameras": cameras, **facts}
    write_durably(folder / "encoder.json", json.dumps(description, indent=2).encode())


def _description(folder: Path) -> dict[str, Any]:
    try:
        description: dict[str, Any] = json.loads((folder / "encoder.json").read_bytes())
        if description["format"] != FORMAT or not description["cameras"]:
            raise ValueError(f"format {description['format']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(
            "There is no encoder in this folder.",
            got=f"{printable(str(folder))}: {error}",
            allowed="a folder that `robo-rl fit-encoder` wrote",
        ) from error
    return description
