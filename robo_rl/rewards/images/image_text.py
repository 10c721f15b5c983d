"""Interface of models that embed pictures and sentences in one space, such as CLIP (`robo_rl.image_text_models`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.entry_points import load
from robo_rl.rewards.images.picture_reward import Pictures
from robo_rl.settings import settings_as


class ImageTextModel(Protocol):
    """Interface of models that embed pictures and sentences in one space, such as CLIP.

    The fields of the class are its settings; weights are loaded at first use.
    """

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of weights, preprocessing and settings."""

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, D) for N pictures (N, H, W, 3) uint8 RGB of any size.

        The result does not depend on the batch.

        Raises SpecMismatch for pictures of another size if the model is made for one camera.
        """

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, D) for N sentences; raises InvalidSetting for words that the model does not know."""


def image_text_model(name: str, settings: Mapping[str, Any]) -> ImageTextModel:
    """Return a model by its name; raises UnknownName, or InvalidSetting with the wrong setting."""
    model: ImageTextModel = settings_as(load("image_text_models", name), settings, source=f"the model {name}")
    return model
