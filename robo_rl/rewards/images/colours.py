"""An image-text model that knows only colours, to test a reward before a real model is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.errors import UnknownName
from robo_rl.rewards.identity import NamedSettings
from robo_rl.rewards.images.picture_reward import Pictures

RGB = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (127, 127, 127),
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
}


@dataclass(frozen=True)
class Colours(NamedSettings):
    """Image-text model that embeds the mean colour of a picture, and sentences made of names of colours."""

    name: ClassVar[str] = "colours"

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, 4) of the mean colour of each picture."""
        return _embedded([picture.reshape(-1, 3).mean(axis=0, dtype=np.float64) for picture in pictures])

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, 4) of the mean of the named colours; raises UnknownName for any other word."""
        for word in (word for text in texts for word in text.lower().split() or [""]):
            if word not in RGB:
                raise UnknownName("colour", word, RGB)
        return _embedded([np.mean([RGB[word] for word in text.lower().split()], axis=0) for text in texts])


def _embedded(colours: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float32]:
    """Return unit vectors: a colour seen from grey, and a constant that gives grey itself a direction."""
    found = np.zeros((len(colours), 4))
    found[:, 3] = 0.1
    if len(colours):
        found[:, :3] = np.stack(colours) / 255 - 0.5
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype(np.float32)
