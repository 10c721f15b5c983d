"""An encoder of pictures fitted to what a simulator knows: convolutions trained to tell objects and goals, then frozen.

B pictures, T targets: the entries of an observation that pictures are to replace, standardised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
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
from robo_rl.errors import InvalidSetting, printable
from robo_rl.spec.environment import ArraySpec
from robo_rl.system.durable_files import write_durably

FORMAT = 1
CHANNELS = (16, 32, 32, 32)
FEATURES = 64


class PoseNetwork(nn.Module):
    """Convolutions, spatial soft-argmax and two layers: features (B, FEATURES) in [-1, 1] and targets (B, T).

    Soft-argmax gives the mean place of each channel's activation (Finn et al. 2016, "Deep Spatial Autoencoders", arXiv
    1509.06113), which keeps positions that pooling would lose.
    """

    def __init__(self, shape: tuple[int, ...], targets: int, channels: Sequence[int] = CHANNELS) -> None:
        super().__init__()
        layers, (depth, height, width) = convolution_layers(shape, channels[:2])
        more: list[nn.Module] = []
        for count in channels[2:]:
            more += [nn.Conv2d(depth, count, 3, padding=1), nn.ReLU()]
            depth = count
        self.convolutions = nn.Sequential(*layers, *more[:-1])
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
        self.register_buffer("places", torch.stack((rows.ravel(), columns.ravel()), 1), persistent=False)
        self.sharpness = nn.Parameter(torch.ones(()))
        self.hidden = nn.Linear(3 * depth, FEATURES)
        self.exit = nn.Linear(FEATURES, targets)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and targets of uint8 pictures (B, H, W, C)."""
        maps = self.convolutions(pictures.permute(0, 3, 1, 2).float().mul_(1 / 255) - 0.5).flatten(2)
        weights = functional.softmax(self.sharpness * maps, -1)
        places = weights @ self.places
        strength = (weights * maps).sum(-1)
        features = torch.tanh(self.hidden(torch.cat((places.flatten(1), strength), 1)))
        return features, self.exit(features)


class FittedEncoder:
    """Encoders of one or several cameras, read from a folder that `save` wrote."""

    def __init__(self, folder: str | Path) -> None:
        """Raise InvalidSetting if the folder holds no encoder."""
        self.folder = Path(folder)
        self.facts = _facts(self.folder)
        self._networks: dict[str, PoseNetwork] = {}
        digest = hashlib.sha256()
        for name, shape in self.facts["cameras"].items():
            network = PoseNetwork(tuple(shape), self.facts["targets"])
            path = self.folder / f"{name}.safetensors"
            try:
                network.load_state_dict(load_file(path))
            except (OSError, RuntimeError, SafetensorError) as error:
                raise InvalidSetting("These weights of an encoder cannot be read.", got=f"{path}: {error}") from error
            digest.update(path.read_bytes())
            self._networks[name] = network.requires_grad_(requires_grad=False)
        self.digest = digest.hexdigest()[:12]

    def sizes(self, pictures: Mapping[str, ArraySpec]) -> dict[str, int]:
        """Return the number of features of each picture; raises InvalidSetting for an unknown camera or another size."""
        for name, array in pictures.items():
            known = self.facts["cameras"]
            if name not in known or array.shape != tuple(known[name]):
                raise InvalidSetting(
                    f"The encoder {self.folder} was not fitted to this picture.",
                    got=f"{name} {list(array.shape)}",
                    allowed=", ".join(f"{camera} {shape}" for camera, shape in known.items()),
                    fix="set image_size and cameras as in its fit, or fit another encoder",
                )
        return {name: FEATURES + self.facts["targets"] for name in pictures}

    @torch.no_grad()
    def encode(self, name: str, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return features and estimated targets (B, FEATURES + T)."""
        encoded: npt.NDArray[np.float32] = torch.cat(self._networks[name](torch.from_numpy(pictures)), 1).numpy()
        return encoded


def save(
    folder: Path, networks: Mapping[str, PoseNetwork], shapes: Mapping[str, tuple[int, ...]], facts: Mapping[str, Any]
) -> None:
    """Write an encoder to a folder; the description is written last, so that a torn folder is no encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = next(iter(networks.values())).exit.out_features
    for name, network in networks.items():
        save_file({key: value.contiguous() for key, value in network.state_dict().items()}, folder / f"{name}.safetensors")
    described = {"format": FORMAT, "targets": targets, "cameras": {name: list(shape) for name, shape in shapes.items()}}
    write_durably(folder / "encoder.json", json.dumps(described | dict(facts), indent=2).encode())


def _facts(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((folder / "encoder.json").read_bytes())
        if facts["format"] != FORMAT or not facts["cameras"]:
            raise KeyError("format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(
            "There is no encoder in this folder.",
            got=f"{printable(str(folder))}: {error}",
            allowed="a folder that `robo-rl encoder fit` wrote",
        ) from error
    return facts
