"""What image-text models that run here by torch share: batches, a device, vectors of length 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.pictures import Pictures


@dataclass(frozen=True, kw_only=True)
class TorchImageText(ABC):
    """An image-text model that runs here by torch; implements `robo_rl.rewards.image_text.ImageTextModel`."""

    model: str
    """Name of the model."""
    device: str = "cpu"
    """Where it computes, as torch names it: cpu, cuda, cuda:1, mps. Part of the last digits only, so not of the identity."""
    batch: int = 64
    """Pictures that it looks at together, at most. Part of the last digits only, so not of the identity."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of the longest text that it can read."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Returns how many tokens a text has; raises InvalidSetting for words that the model does not know."""

    @abstractmethod
    def see(self, pictures: Pictures) -> torch.Tensor:
        """Returns the features (B, D) of pictures, cut and scaled as the model was trained, on the device."""

    @abstractmethod
    def read(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns the features (B, D) of texts, on the device."""

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Returns (N, D) unit vectors."""
        if not len(pictures):
            return self.embed_pictures(np.zeros((1, 32, 32, 3), np.uint8))[:0]
        return embedded(pictures, self.batch, self.see)

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns (N, D) unit vectors; raises InvalidSetting for words that it does not know, and for too many of them."""
        for text in texts:  # libraries would cut it off in silence
            if (tokens := self.count_tokens(text)) > self.longest:
                raise InvalidSetting(
                    f"The model {self.model} cannot read so long a text: {text!r}.",
                    got=f"{tokens} tokens",
                    allowed=self.longest,
                )
        if not texts:
            return self.embed_texts([""])[:0]
        return embedded(texts, self.batch, self.read)


def embedded(items: Sequence[str] | Pictures, batch: int, embed: Callable[[Any], torch.Tensor]) -> npt.NDArray[np.float32]:
    """Returns (N, D) unit vectors, of batches of about the same size, so that equal items have equal answers.

    Nothing is prepared in a thread beside: torch would begin as many threads again for it, in the way of the model's.
    """
    bounds = np.linspace(0, len(items), -(-len(items) // batch) + 1).round().astype(int).tolist()
    with torch.inference_mode():
        found = torch.cat([embed(items[start:stop]) for start, stop in pairwise(bounds)]).float()
        vectors: npt.NDArray[np.float32] = (found / found.norm(dim=-1, keepdim=True)).cpu().numpy()
    return vectors


def on_device(model: torch.nn.Module, device: str) -> Any:
    """Returns a model ready to be asked on a device; raises InvalidSetting where that is not there."""
    try:
        return model.eval().requires_grad_(False).to(device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidSetting(
            "The device cannot be used.", got=f"{device}: {str(error).splitlines()[0]}", allowed="cpu, cuda, cuda:1, mps, ..."
        ) from error
