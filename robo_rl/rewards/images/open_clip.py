"""Models of the library open_clip (https://github.com/mlfoundations/open_clip), imported at first use.

It needs the torchvision that belongs to the installed torch; therefore it is a separate extra, in no default environment.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any

import torch
from typing_extensions import override

from robo_rl.errors import InvalidSetting, MissingExtra, RoboRLError, require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.local_models import TorchImageText, on_device
from robo_rl.rewards.images.picture_reward import Pictures


@dataclass(frozen=True)
class OpenCLIP(TorchImageText):
    """Image-text model CLIP of the library open_clip (extra `openclip`)."""

    pretrained: str
    """File of weights, or the library's name for weights, such as laion2b_s34b_b79k, which are downloaded once."""
    model: str = "ViT-B-32"
    """Name of the architecture in the library."""

    def __post_init__(self) -> None:
        words = "a file or a name: without it, weights would be random"
        require_allowed(self, {"pretrained": (bool(self.pretrained), words), "batch": (self.batch >= 1, "1 or more")})

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Name with the architecture, and a hash of weights and preprocessing."""
        model, _, _ = self._parts
        preparation = getattr(model.visual, "preprocess_cfg", {})
        facts = asdict(preparation) if is_dataclass(preparation) and not isinstance(preparation, type) else preparation
        weights = ((name, tensor.cpu().contiguous().numpy()) for name, tensor in sorted(model.state_dict().items()))
        parts = [part for name, array in weights for part in (name.encode(), array.tobytes())]
        return f"open_clip {self.model}", hash_of(json.dumps(facts, sort_keys=True, default=str).encode(), *parts)

    @override
    def see(self, pictures: Pictures) -> torch.Tensor:
        from PIL import Image  # which open_clip brings along

        model, prepare, _ = self._parts
        pixels = torch.stack([prepare(Image.fromarray(picture)) for picture in pictures])
        features: torch.Tensor = model.encode_image(pixels.to(self.device))
        return features

    @override
    def read(self, texts: Sequence[str]) -> torch.Tensor:
        model, _, tokenize = self._parts
        features: torch.Tensor = model.encode_text(tokenize(list(texts)).to(self.device))
        return features

    @override
    def count_tokens(self, text: str) -> int:
        return int((self._parts[2]([text], context_length=4 * self.longest) != 0).sum())

    @property
    @override
    def longest(self) -> int:
        return int(self._parts[0].context_length)

    @cached_property
    def _parts(self) -> tuple[Any, Any, Any]:
        library = _library()
        try:
            model, _, prepare = library.create_model_and_transforms(self.model, pretrained=self.pretrained)
            return on_device(model.float(), self.device), prepare, library.get_tokenizer(self.model)
        except RoboRLError:
            raise
        except Exception as error:  # strange weights make the library raise anything
            raise InvalidSetting(
                f"The model {self.model} of open_clip cannot be loaded with {self.pretrained}.",
                got=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
                allowed="names that open_clip.list_pretrained() knows, or a file of weights",
            ) from error


def _library() -> Any:
    try:
        return importlib.import_module("open_clip")
    except ModuleNotFoundError as error:
        if error.name == "open_clip":
            raise MissingExtra("The image-text model open-clip", "open_clip", "openclip") from None
        raise _unusable(error) from error
    except (ImportError, RuntimeError) as error:
        raise _unusable(error) from error


def _unusable(error: Exception) -> RoboRLError:
    return RoboRLError(
        "open_clip is installed, but cannot be imported.",
        got=f"{type(error).__name__}: {str(error).splitlines()[0]}",
        fix="install the torchvision that belongs to the installed torch, from the same index; or use the model transformers",
    )
