"""CLIP, SigLIP and similar models of the library transformers (https://huggingface.co/docs/transformers).

The library is imported at first use.

Only safetensors are read, since other formats of weights can run code. A name on huggingface.co is downloaded into a folder
first; equal files have the same identity in any folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.images.local_models import TorchImageText, hub_folder, identity_of, loaded, loaded_model, on_device
from robo_rl.rewards.images.picture_reward import Pictures

KIND = "image-text model"
FIX = (
    "where torchvision is named, remove it (pip uninstall torchvision): it is not needed, and one for another torch "
    "breaks transformers"
)


@dataclass(frozen=True)
class HuggingFace(TorchImageText):
    """Image-text model CLIP, SigLIP or similar, of the library transformers, from a folder or huggingface.co (extra `hf`)."""

    model: str
    """Folder that `save_pretrained` wrote, or name on huggingface.co, which is downloaded once."""
    revision: str = "main"
    """Branch, tag or commit, for a name on huggingface.co."""

    def __post_init__(self) -> None:
        require_allowed(self, {"model": (bool(self.model), "a folder or a name"), "batch": (self.batch >= 1, "1 or more")})

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Kind of the model, and a hash of its files."""
        kind, files = identity_of(self._folder)
        return f"transformers {kind}", files

    @override
    def see(self, pictures: Pictures) -> torch.Tensor:
        processor = self._parts[1].image_processor
        prepared = processor(list(pictures), return_tensors="pt", input_data_format="channels_last")
        return self._features("image", pixel_values=prepared["pixel_values"])

    @override
    def read(self, texts: Sequence[str]) -> torch.Tensor:
        # SigLIP was trained with texts of full length; CLIP ignores the padding after the end
        tokens = self._tokenizer(list(texts), padding="max_length", max_length=self.longest, return_tensors="pt")
        return self._features("text", **tokens)

    def _features(self, kind: str, **inputs: torch.Tensor) -> torch.Tensor:
        moved = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        found = getattr(self._parts[0], f"get_{kind}_features")(**moved)
        features: torch.Tensor = getattr(found, "pooler_output", found)  # before version 5 a tensor
        return features

    @override
    def count_tokens(self, text: str) -> int:
        unknown = self._tokenizer.unk_token_id

        def is_unknown(words: str) -> bool:  # without special tokens, one of which may stand for unknown ones, too
            return unknown in self._tokenizer(words, add_special_tokens=False)["input_ids"]

        if is_unknown(text):
            words = [word for word in text.split() if is_unknown(word)]
            raise InvalidSetting(f"The model {self.model} does not know all words of {text!r}.", got=", ".join(words))
        return len(self._tokenizer(text)["input_ids"])

    @cached_property
    def _folder(self) -> Path:
        """Folder of the files; a name on huggingface.co is downloaded if necessary."""
        return hub_folder(self.model, self.revision, KIND)

    @property
    def _tokenizer(self) -> Any:
        return self._parts[1].tokenizer

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        """Model and processor, both loaded before a thread uses either."""
        processor = loaded("AutoProcessor", self._folder, KIND, FIX)
        model = loaded_model("AutoModel", self._folder, KIND, FIX)
        if not hasattr(model, "get_image_features"):
            raise InvalidSetting(
                f"{self.model} is not an image-text model.", got=type(model).__name__, allowed="CLIP, SigLIP, ..."
            )
        return on_device(model.float(), self.device), processor

    @property
    @override
    def longest(self) -> int:
        return int(self._parts[0].config.text_config.max_position_embeddings)
