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
    """1,280 pooled features of each camera."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        """folder: "imagenet", the only weights that there are. Raise InvalidSetting, and MissingExtra without the package."""
        if folder != WEIGHTS:
            raise InvalidSetting("The weights of EfficientNet-Lite0 have one name.", got=folder, allowed=WEIGHTS)
        self._device = resolve_device(device)
        model, digest = lite0()
        self._model, self.digest = model.to(self._device), f"efficientnet-lite0-{digest}"

    def size(self, spec: EnvironmentSpec) -> int:
        """Return the number of features of all pictures; raises InvalidSetting unless they are RGB. Any size is scaled."""
        self._cameras = cameras_of(spec)
        return FEATURES * len(self._cameras)

    @torch.inference_mode()
    def encode(self, observations: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return the features (B, F) of each picture (B, H, W, 3), RGB, one after the other."""
        return np.concatenate([self._encoded(observations[name]) for name in self._cameras], 1)

    def _encoded(self, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        parts = torch.split(torch.from_numpy(np.ascontiguousarray(pictures)), LARGEST_BATCH)
        features: npt.NDArray[np.float32] = torch.cat([self._model(part.to(self._device)) for part in parts]).cpu().numpy()
        return features
