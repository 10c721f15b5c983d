"""Frozen encoder by a pre-trained vision model of the library transformers, read from a local folder (extra `hf`).

DINOv2, SigLIP, CLIP, ResNet, ViT and their like. Only safetensors are read, since other weights can run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting
from robo_rl.fitting import resolve_device
from robo_rl.rewards.images.local_models import identity_of, loaded, loaded_model
from robo_rl.spec.environment import EnvironmentSpec

KIND = "vision model"
FIX = "name the folder of a vision model in safetensors, such as DINOv2, SigLIP or ResNet, with its preprocessor_config.json"
LARGEST_BATCH = 64


class PretrainedEncoder:
    """Frozen encoder: a vision model of the library transformers, read from a local folder.

    The features of a picture are the model's pooled output, or those of its class token if it has none.
    """

    def __init__(self, folder: str, device: str = "cpu") -> None:
        """Load the model; raises InvalidSetting if the folder holds no vision model, or there is no such device.

        folder: as `save_pretrained` writes it. device: "cpu", "cuda" and so on.
        """
        path = Path(folder).expanduser()
        if not (path / "config.json").is_file():
            raise InvalidSetting(
                f"There is no {KIND} in this folder.", got=str(path), allowed="a local folder with config.json", fix=FIX
            )
        self._device = resolve_device(device)
        kind, files = identity_of(path)
        self.digest = f"{kind}-{files}"
        self._processor = loaded("AutoImageProcessor", path, KIND, FIX)
        whole = loaded_model("AutoModel", path, KIND, FIX)
        model = getattr(whole, "vision_model", whole)  # the half of CLIP and SigLIP that sees
        if getattr(model, "main_input_name", "") != "pixel_values":
            got = f"{type(whole).__name__} ({kind}), which reads {getattr(model, 'main_input_name', 'nothing')}"
            raise InvalidSetting(f"{path} holds no {KIND}.", got=got, allowed="a model of pixel_values", fix=FIX)
        self._model = model.float().eval().requires_grad_(requires_grad=False).to(self._device)
        self._size: int = self._encoded(np.zeros((1, 32, 32, 3), np.uint8)).shape[1]

    def size(self, spec: EnvironmentSpec) -> int:
        """Return F, the number of features of all pictures of a spec; raises InvalidSetting unless each picture is RGB.

        Call it before `encode`: it decides which pictures are read. Pictures of any size are allowed.
        """
        self._cameras = cameras_of(spec)
        return self._size * len(self._cameras)

    def encode(self, observations: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return the features (B, F) of named observations; pictures are uint8 RGB (B, H, W, 3)."""
        cameras = [observations[name] for name in self._cameras]
        parts = (
            pictures[start : start + LARGEST_BATCH] for pictures in cameras for start in range(0, len(pictures), LARGEST_BATCH)
        )
        return np.concatenate(np.split(np.concatenate([self._encoded(part) for part in parts]), len(cameras)), 1)

    @torch.inference_mode()
    def _encoded(self, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        pixels = self._processor(list(pictures), return_tensors="pt", input_data_format="channels_last")["pixel_values"]
        output: Any = self._model(pixel_values=pixels.to(self._device))
        pooled = output.last_hidden_state[:, 0] if output.pooler_output is None else output.pooler_output
        features: npt.NDArray[np.float32] = pooled.flatten(1).cpu().numpy()  # that of ResNet is (B, F, 1, 1)
        return features


def cameras_of(spec: EnvironmentSpec) -> tuple[str, ...]:
    """Return the names of all pictures of a spec; raises InvalidSetting unless each is uint8 (height, width, 3)."""
    pictures = spec.observation.subset("image")
    for name, array in pictures.items():
        if array.dtype != "uint8" or len(array.shape) != 3 or array.shape[2] != 3:
            raise InvalidSetting(
                "A vision model reads colour pictures.",
                got=f"{name}: {array.dtype} {list(array.shape)}",
                allowed="uint8 (height, width, 3)",
                fix="stack features of single pictures instead of pictures",
            )
    return tuple(pictures)
