"""Models that run here with torch: folders of the library transformers, devices, batches, unit vectors.

Folders are local or downloaded once, and identified by their contents. Only safetensors are read, since other formats of
weights can run code.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting, MissingExtra, RoboRLError
from robo_rl.rewards.images.picture_reward import Pictures

FILES = ("*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors")
"""Patterns of the files on which answers depend: configuration, preprocessing, vocabulary, chat template, weights."""


def hub_folder(model: str, revision: str, kind: str) -> Path:
    """Return the folder with a model's files; a name on huggingface.co is downloaded first. Raises InvalidSetting.

    kind: noun for the model in the message.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    hub = library("huggingface_hub", kind)
    try:
        return Path(hub.snapshot_download(model, revision=revision, allow_patterns=[*FILES]))
    except Exception as error:  # a network library may raise anything
        raise InvalidSetting(
            f"There is no {kind} {model!r}, and it cannot be downloaded.",
            got=str(error).strip().splitlines()[0],
            allowed="a folder that is there, or NAME/MODEL on huggingface.co",
            fix="copy the model's folder here, or download it once where there is a network",
        ) from error


def identity_of(folder: Path) -> tuple[str, str]:
    """Return the type of model in the configuration, and a hash of all files of the folder."""
    whole, kind = hashlib.sha256(), "unknown"
    for path in sorted({path for pattern in FILES for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    if (config := folder / "config.json").is_file():
        kind = json.loads(config.read_bytes()).get("model_type", kind)
    return kind, whole.hexdigest()[:16]


def loaded(source: str, folder: Path, kind: str, fix: str, **options: Any) -> Any:
    """Load an object by `from_pretrained` of transformers' class `source` from a folder.

    kind, fix: noun for the model, and remedy, in the message. Raises InvalidSetting for a folder that cannot be loaded,
    MissingExtra.
    """
    found = library("transformers", kind)
    try:
        return getattr(found, source).from_pretrained(folder, local_files_only=True, **options)
    except RoboRLError:
        raise
    except Exception as error:  # a strange folder makes the library raise anything
        raise InvalidSetting(
            f"The {kind} {folder} cannot be loaded.",
            got=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
            allowed=f"a folder of the library transformers: {', '.join(FILES)}",
            fix=fix,
        ) from error


def loaded_model(source: str, folder: Path, kind: str, fix: str, **options: Any) -> Any:
    """Return the model in a folder; raises InvalidSetting if weights are missing, because these would be random."""
    model, report = loaded(source, folder, kind, fix, use_safetensors=True, output_loading_info=True, **options)
    if report["missing_keys"]:
        raise InvalidSetting(f"Weights of {folder} are missing.", got=", ".join(sorted(report["missing_keys"])[:5]))
    return model


def library(name: str, kind: str) -> Any:
    """Import a library and return it; raises MissingExtra if it is not installed.

    kind: noun for what needs the library, in the message.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtra(f"The {kind} of transformers", name, "hf") from None


@dataclass(frozen=True, kw_only=True)
class TorchImageText(ABC):
    """Base class of image-text models that run here with torch; see `robo_rl.rewards.images.image_text.ImageTextModel`."""

    device: str = "cpu"
    """Device by torch's name: cpu, cuda, cuda:1, mps. It changes only the last digits, and is not part of the identity."""
    batch: int = 64
    """Largest batch of pictures, 1 or more. It changes only the last digits, and is not part of the identity."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, str]:
        """Name, and hash of weights, preprocessing and settings."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Largest number of tokens of a text."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text; raises InvalidSetting for words that the model does not know."""

    @abstractmethod
    def see(self, pictures: Pictures) -> torch.Tensor:
        """Return features (B, D), on the device, of pictures, which are cropped and scaled as in the model's training."""

    @abstractmethod
    def read(self, texts: Sequence[str]) -> torch.Tensor:
        """Return features (B, D), on the device, of texts."""

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, D) of pictures (N, H, W, 3)."""
        if not len(pictures):
            return self.embed_pictures(np.zeros((1, 32, 32, 3), np.uint8))[:0]
        return embedded(pictures, self.batch, self.see)

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, D) of texts; raises InvalidSetting for unknown words or too long texts."""
        for text in texts:  # libraries would cut it off in silence
            if (tokens := self.count_tokens(text)) > self.longest:
                raise InvalidSetting(
                    f"The model {self.identity[0]} cannot read so long a text: {text!r}.",
                    got=f"{tokens} tokens",
                    allowed=self.longest,
                )
        if not texts:
            return self.embed_texts([""])[:0]
        return embedded(texts, self.batch, self.read)


def embedded(items: Sequence[str] | Pictures, batch: int, embed: Callable[[Any], torch.Tensor]) -> npt.NDArray[np.float32]:
    """Return unit vectors (N, D) of items, computed in batches of about the same size, so that equal items have equal vectors.

    No second thread prepares batches: torch would start as many threads again, which slow down the model's own.
    """
    bounds = np.linspace(0, len(items), -(-len(items) // batch) + 1).round().astype(int).tolist()
    with torch.inference_mode():
        found = torch.cat([embed(items[start:stop]) for start, stop in pairwise(bounds)]).float()
        vectors: npt.NDArray[np.float32] = (found / found.norm(dim=-1, keepdim=True)).cpu().numpy()
    return vectors


def on_device(model: torch.nn.Module, device: str) -> Any:
    """Move a model to a device, in inference mode; raises InvalidSetting if there is no such device."""
    try:
        return model.eval().requires_grad_(False).to(device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidSetting(
            "The device cannot be used.", got=f"{device}: {str(error).splitlines()[0]}", allowed="cpu, cuda, cuda:1, mps, ..."
        ) from error
