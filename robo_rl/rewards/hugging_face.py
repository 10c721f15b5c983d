"""CLIP, SigLIP and their like from the transformers library (https://huggingface.co/docs/transformers), which is imported late.

Only safetensors are read, since other weights can run code. A name on huggingface.co is brought into a folder first; from there
on there are only folders, and the same files have the same identity wherever they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.embedding import embedded, on_device
from robo_rl.rewards.hub_folder import hub_folder, identity_of, loaded
from robo_rl.rewards.pictures import Pictures


@dataclass(frozen=True)
class HuggingFace:
    """CLIP, SigLIP and their like, with weights in a folder or from huggingface.co (extra `hf`)."""

    model: str
    """A folder that `save_pretrained` wrote, or a name on huggingface.co, which is downloaded once."""
    revision: str = "main"
    """Branch, tag or commit, for a name on huggingface.co."""
    device: str = "cpu"
    """Where it computes, as torch names it: cpu, cuda, cuda:1, mps. Part of the last digits only, so not of the identity."""
    batch: int = 64
    """Pictures that it looks at together, at most. Part of the last digits only, so not of the identity."""

    def __post_init__(self) -> None:
        require_allowed(self, {"model": (bool(self.model), "a folder or a name"), "batch": (self.batch >= 1, "1 or more")})

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Kind of the model, and a hash of its files."""
        kind, files = identity_of(self._folder)
        return f"transformers {kind}", files

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Returns (N, D) unit vectors for pictures that were cut and scaled as the model's own configuration says."""
        if not len(pictures):
            return self.embed_pictures(np.zeros((1, 32, 32, 3), np.uint8))[:0]
        return embedded(pictures, self.batch, self._prepared, lambda prepared: self._features("image", pixel_values=prepared))

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns (N, D) unit vectors; raises InvalidSetting for words that it does not know, and for too many of them."""
        for text in texts:
            self._require_known(text)
        if not texts:
            return self.embed_texts([""])[:0]
        # SigLIP was trained with texts of full length; for CLIP, which looks at what comes before the end, it changes nothing
        options = {"padding": "max_length", "max_length": self._longest, "return_tensors": "pt"}
        return embedded(
            texts,
            self.batch,
            lambda some: self._tokenizer(list(some), **options),
            lambda tokens: self._features("text", **tokens),
        )

    def _prepared(self, pictures: Pictures) -> torch.Tensor:
        _, processor = self._parts
        prepared = processor.image_processor(list(pictures), return_tensors="pt", input_data_format="channels_last")
        pixels: torch.Tensor = prepared["pixel_values"]
        return pixels

    def _features(self, what: str, **inputs: torch.Tensor) -> torch.Tensor:
        moved = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        found = getattr(self._parts[0], f"get_{what}_features")(**moved)
        features: torch.Tensor = getattr(found, "pooler_output", found)  # before version 5 a tensor
        return features

    def _require_known(self, text: str) -> None:
        unknown = self._tokenizer.unk_token_id

        def is_unknown(words: str) -> bool:  # without special tokens, one of which may stand for unknown ones, too
            return unknown in self._tokenizer(words, add_special_tokens=False)["input_ids"]

        if is_unknown(text):
            words = [word for word in text.split() if is_unknown(word)]
            raise InvalidSetting(f"The model {self.model} does not know all words of {text!r}.", got=", ".join(words))
        if (length := len(self._tokenizer(text)["input_ids"])) > self._longest:
            raise InvalidSetting(
                f"The model {self.model} cannot read so long a text: {text!r}.", got=f"{length} tokens", allowed=self._longest
            )

    @cached_property
    def _folder(self) -> Path:
        """Where the files lie; a name on huggingface.co is downloaded unless it was before."""
        return hub_folder(self.model, self.revision, "image-text model")

    @property
    def _tokenizer(self) -> Any:
        return self._parts[1].tokenizer

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        """The model, and what prepares pictures and texts for it; both loaded before a thread asks for one."""
        processor = self._loaded("AutoProcessor")
        model, report = self._loaded("AutoModel", use_safetensors=True, output_loading_info=True)
        if report["missing_keys"]:  # which transformers would fill with random numbers
            raise InvalidSetting(f"Weights of {self.model} are missing.", got=", ".join(sorted(report["missing_keys"])[:5]))
        if not hasattr(model, "get_image_features"):
            raise InvalidSetting(
                f"{self.model} is not an image-text model.", got=type(model).__name__, allowed="CLIP, SigLIP, ..."
            )
        return on_device(model.float(), self.device), processor

    @property
    def _longest(self) -> int:
        return int(self._parts[0].config.text_config.max_position_embeddings)

    def _loaded(self, source: str, **options: Any) -> Any:
        fix = (
            "where torchvision is named, remove it (pip uninstall torchvision): it is not needed, and one for another torch "
            "breaks transformers"
        )
        return loaded(source, self._folder, "image-text model", fix, **options)
