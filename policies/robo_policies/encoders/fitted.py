"""Frozen encoder of pictures that estimates the objects and goals of a simulator's observation.

It also reads the vectors of proprioception, because a picture of the hand's camera means little without the pose of the hand.
B rows; T targets, the numbers of the observation (positions of objects and goals) that the pictures replace, standardised.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.networks.convolutions import convolution_layers
from robo_rl.errors import InvalidSetting, printable
from robo_rl.fitting import resolve_device
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.durable_files import write_durably

FORMAT = 1
HALVING = (16, 32)
"""Channels of the first convolutions, each of which halves the sides of the picture."""
KEEPING = (32, 32)
"""Channels of the convolutions after them, which keep the size."""
HIDDEN = 128
FEATURES = 64
WEIGHTS = "weights.safetensors"
DESCRIPTION = "encoder.json"


class KeypointNetwork(nn.Module):
    """Network of a fitted encoder: convolutions and spatial soft-argmax for each camera, then two layers with the vectors.

    Soft-argmax is the mean position of each channel's activation, as in Levine et al. 2016, "End-to-End Training of Deep
    Visuomotor Policies", arXiv:1504.00702; it keeps positions that pooling would lose.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, cameras: Mapping[str, tuple[int, ...]], vectors: int, targets: int) -> None:
        """Make an untrained network.

        Args:
            cameras: Shape (H, W, C) of each picture by name.
            vectors: D, number of elements of all vectors.
            targets: T, number of targets.
        """
        super().__init__()
        self.cameras = nn.ModuleDict({name: _Keypoints(shape) for name, shape in cameras.items()})
        self.register_buffer("mean", torch.zeros(vectors))
        self.register_buffer("std", torch.ones(vectors))
        read = 3 * KEEPING[-1] * len(cameras) + vectors
        self.hidden = nn.Sequential(nn.Linear(read, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, FEATURES), nn.Tanh())
        self.head = nn.Linear(FEATURES + read, targets)

    def forward(self, pictures: Mapping[str, Tensor], vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, FEATURES) in [-1, 1] and estimated targets (B, T).

        pictures: uint8 (B, H, W, C) by name. vectors: (B, D).
        """
        keypoints = [network(pictures[name]) for name, network in self.cameras.items()]
        read = torch.cat((*keypoints, (vectors - self.mean) / self.std), 1)
        features: Tensor = self.hidden(read)
        return features, self.head(torch.cat((features, read), 1))


class _Keypoints(nn.Module):
    places: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        layers, (depth, height, width) = convolution_layers(shape, HALVING)
        for count in KEEPING:
            layers += [nn.Conv2d(depth, count, 3, padding=1), nn.ReLU()]
            depth = count
        self.convolutions = nn.Sequential(*layers[:-1])  # soft-argmax reads values of both signs
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
        self.register_buffer("places", torch.stack((rows.ravel(), columns.ravel()), 1), persistent=False)
        self.sharpness = nn.Parameter(torch.ones(()))

    def forward(self, pictures: Tensor) -> Tensor:
        """Return rows and columns in [-1, 1] and strengths of all channels, (B, 3 * channels); pictures: uint8 (B, H, W, C)."""
        prepared = (
            pictures.permute(0, 3, 1, 2).float().contiguous()
        )  # the layout decides on the kernel, and so on the last digits
        maps = self.convolutions(prepared.mul_(1 / 255).sub_(0.5)).flatten(2)
        maps = self.sharpness * functional.layer_norm(
            maps, maps.shape[-1:]
        )  # else maps that are flat at first stay so for long
        weights = functional.softmax(maps, -1)
        return torch.cat(((weights @ self.places).flatten(1), (weights * maps).sum(-1)), 1)


class FittedEncoder:
    """Frozen encoder that estimates positions from an environment's cameras, loaded from a folder of `robo-rl fit-encoder`."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        """Load an encoder; raises InvalidSetting if the folder holds none, or there is no such device.

        folder: output of `robo-rl fit-encoder`. device: "cpu", "cuda" and so on, as in the setting `device` of learners.
        """
        self._folder, self._device = Path(folder), resolve_device(device)
        self._description = _description(self._folder)
        path = self._folder / WEIGHTS
        network = network_for(self._arrays("cameras"), self._arrays("vectors"), self._description["targets"])
        try:
            network.load_state_dict(load_file(path))
        except (OSError, RuntimeError, SafetensorError) as error:
            raise InvalidSetting("Weights of an encoder cannot be read.", got=f"{path}: {error}") from error
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self._network = network.requires_grad_(requires_grad=False).to(self._device)

    def size(self, spec: EnvironmentSpec) -> int:
        """Return the number of outputs of the encoder, FEATURES + T, after a check that it fits a spec.

        Raises:
            InvalidSetting: A camera or vector of the fit is missing in the spec, or has another shape.
        """
        wanted = self._arrays("cameras") | self._arrays("vectors")
        found = {name: array.shape for name, array in spec.observation.items() if name in wanted}
        if found != wanted:
            raise InvalidSetting(
                f"The encoder {self._folder} was fitted to other observations than those of {spec.name!r}.",
                got=", ".join(f"{name} {list(shape)}" for name, shape in found.items()),
                allowed=", ".join(f"{name} {list(shape)}" for name, shape in wanted.items()),
                fix="set cameras and image_size as they were in its fit, or fit another encoder",
            )
        return FEATURES + int(self._description["targets"])

    @torch.no_grad()
    def encode(self, observations: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return features and estimated targets (B, FEATURES + T) of named observations (B, ...)."""
        tensors = {name: torch.as_tensor(array, device=self._device) for name, array in observations.items()}
        vectors = torch.cat([tensors[name].flatten(1) for name in self._description["vectors"]], 1)
        values: npt.NDArray[np.float32] = torch.cat(self._network(tensors, vectors), 1).cpu().numpy()
        return values

    def _arrays(self, kind: str) -> dict[str, tuple[int, ...]]:
        return {name: tuple(shape) for name, shape in self._description[kind].items()}


def network_for(
    cameras: Mapping[str, tuple[int, ...]], vectors: Mapping[str, tuple[int, ...]], targets: int
) -> KeypointNetwork:
    """Build an untrained network of an encoder.

    Args:
        cameras: Name of a picture -> its shape (height, width, channels).
        vectors: Name of a vector -> its shape.
        targets: T, number of estimated targets.
    """
    return KeypointNetwork(cameras, sum(math.prod(shape) for shape in vectors.values()), targets)


def save_encoder(folder: Path, network: KeypointNetwork, description: Mapping[str, Any]) -> None:
    """Write a network to a folder. The description is written last, so that a half-written folder is not taken for an encoder.

    description: shapes of `cameras` and `vectors` by name, number of `targets`, and any further entries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / WEIGHTS, save({key: value.contiguous() for key, value in network.state_dict().items()}))
    write_durably(folder / DESCRIPTION, json.dumps({"format": FORMAT, **description}, indent=2).encode())


def _description(folder: Path) -> dict[str, Any]:
    try:
        description: dict[str, Any] = json.loads((folder / DESCRIPTION).read_bytes())
        if description["format"] != FORMAT or not description["cameras"] or not description["targets"]:
            raise ValueError(f"format {description['format']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(
            "There is no encoder in this folder.",
            got=f"{printable(str(folder))}: {error}",
            allowed="a folder that `robo-rl fit-encoder` wrote",
        ) from error
    return description
