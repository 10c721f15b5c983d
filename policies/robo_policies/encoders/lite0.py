"""Frozen encoder by EfficientNet-Lite0, whose ImageNet weights come with a package (extra `towers`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_policies.encoders.pretrained import LARGEST_BATCH, cameras_of
from robo_rl.errors import InvalidSetting
from robo_rl.fitting import resolve_device
from robo_rl.rewards.images.efficientnet import FEATURES, lite0
from robo_rl.spec.environment import EnvironmentSpec

WEIGHTS = "imagenet"


class Lite0Encoder:
    """Frozen encoder with 1,280 pooled features of each picture, concatenated in the order of the spec."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        """Load the network; raises InvalidSetting for other weights, MissingExtra without the package.

        folder: must be "imagenet", the only available weights. device: "cpu", "cuda" and so on.
        """
        if folder != WEIGHTS:
            raise InvalidSetting("The weights of EfficientNet-Lite0 have one name.", got=folder, allowed=WEIGHTS)
        self._device = resolve_device(device)
        model, digest = lite0()
        self._model, self.digest = model.to(self._device), f"efficientnet-lite0-{digest}"

    def size(self, spec: EnvironmentSpec) -> int:
        """Return F, the number of features of all pictures of a spec; raises InvalidSetting unless each picture is RGB.

        Call it before `encode`: it decides which pictures are read. Pictures of any size are allowed.
        """
        self._cameras = cameras_of(spec)
        return FEATURES * len(self._cameras)

    @torch.inference_mode()
    def encode(self, observations: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return the features (B, F) of named observations; pictures are uint8 RGB (B, H, W, 3)."""
        return np.concatenate([self._encoded(observations[name]) for name in self._cameras], 1)

    def _encoded(self, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        parts = torch.split(torch.from_numpy(np.ascontiguousarray(pictures)), LARGEST_BATCH)
        features: npt.NDArray[np.float32] = torch.cat([self._model(part.to(self._device)) for part in parts]).cpu().numpy()
        return features
