"""Reward models of pictures whose labelling is measured, each with its bare model.

All have random weights: their answers mean nothing, their speed is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from typing_extensions import override

from robo_rl.rewards.embedded.model import EmbeddedModel, Origin
from robo_rl.rewards.embedded.rewards import EmbeddedProgress
from robo_rl.rewards.images.image_text import ImageTextModel
from robo_rl.rewards.images.local_models import embedded, on_device
from robo_rl.rewards.images.picture_reward import PictureReward, Pictures
from robo_rl.rewards.images.vlm_rm import VLMRM

Forward = Callable[[Pictures], Callable[[], object]]
"""Function that prepares a batch of pictures and returns another one, which passes it once through the bare model."""
TEXTS: dict[str, Any] = {"goal": ("a robot",), "baseline": ("a robot and a table",)}


@dataclass(frozen=True)
class LabellingModel:
    """Case of the benchmark: a picture model, the size of its pictures, and the number of steps to label."""

    size: int
    """[pixel] of a picture."""
    episodes: int
    """Number of labelled steps: enough for a realistic share of the work around the model."""
    batches: tuple[int, ...]
    """Batch sizes to try; the bare model is measured with each, and the fastest counts."""
    build: Callable[[Path, Pictures, int], tuple[PictureReward, Forward]]
    """Builds it from an empty folder, pictures of the scene and the size of a batch."""


@dataclass(frozen=True)
class RandomNetwork(ImageTextModel):
    """An image-text model of four convolutions and a mean, with 0.1 million parameters at width 32."""

    batch: int = 64
    width: int = 32

    @property
    @override
    def identity(self) -> tuple[str, str]:
        return "random network", str(self.width)

    @override
    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        return embedded(pictures, self.batch, lambda some: self.network(self.prepared(some)))

    @override
    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return a unit vector for each text, (N, 2 * width), which depends only on the length of the text."""
        vectors = [np.random.default_rng(len(text)).normal(size=2 * self.width).astype(np.float32) for text in texts]
        return np.stack([vector / np.linalg.norm(vector) for vector in vectors])

    @staticmethod
    def prepared(pictures: Pictures) -> torch.Tensor:
        """Convert pictures (N, H, W, 3) uint8 to the network's input, a tensor (N, 3, H, W) in [0, 1]."""
        return torch.from_numpy(pictures).permute(0, 3, 1, 2).float().div_(255)

    @cached_property
    def network(self) -> nn.Sequential:
        """Convolutional network with random weights."""
        torch.manual_seed(0)
        channels = (3, self.width, *[2 * self.width] * 3)
        layers = [layer for size, following in pairwise(channels) for layer in (nn.Conv2d(size, following, 3, 2, 1), nn.ReLU())]
        network: nn.Sequential = on_device(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), "cpu")
        return network


@dataclass(frozen=True, kw_only=True)
class RandomReward(VLMRM):
    """VLM-RM with a network of random weights, whose speed alone is measured."""

    network: RandomNetwork

    @cached_property
    @override
    def embedder(self) -> ImageTextModel:
        return self.network


def small_reward(batch: int = RandomNetwork.batch) -> RandomReward:
    """Return VLM-RM with the random network."""
    return RandomReward(model="random network", network=RandomNetwork(batch), **TEXTS)


def _small(_: Path, __: Pictures, batch: int) -> tuple[PictureReward, Forward]:
    reward = small_reward(batch)
    return reward, lambda pictures: partial(reward.network.network, reward.network.prepared(pictures))


def _embedded(folder: Path, scene: Pictures, _: int) -> tuple[PictureReward, Forward]:
    """Return the progress of an embedded model that was not fitted, for six things; its layers after the encoder are small."""
    size, instruction = scene.shape[1], "go there"
    slots = tuple(f"thing {number}" for number in range(6))
    model = EmbeddedModel(Origin("labelling", "front", size, slots, tuple(instruction.split()), (instruction,)))
    model.encoder.usual.copy_(torch.from_numpy(scene[0]).float())
    model.encoder.still.fill_(value=True)
    model.save(folder)
    reward = EmbeddedProgress(folder=str(folder), instruction=instruction)
    return reward, lambda pictures: partial(reward.model.encoder.describe, torch.from_numpy(pictures))


def _clip(folder: Path, _: Pictures, batch: int) -> tuple[PictureReward, Forward]:
    """Return VLM-RM with a CLIP of the sizes of ViT-B/32, by the transformers library."""
    tokenizers, transformers = import_module("tokenizers"), import_module("transformers")
    torch.manual_seed(0)
    vocabulary = {"<unk>": 0, "<bos>": 1, "<eos>": 2, "a": 3, "robot": 4, "and": 5, "table": 6}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    named = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<eos>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=77, **named)
    tokens = {"vocab_size": len(vocabulary), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=tokens)).eval()
    model.save_pretrained(folder)
    transformers.CLIPProcessor(transformers.CLIPImageProcessor(), tokenizer).save_pretrained(folder)
    reward = VLMRM(model="transformers", model_settings={"model": str(folder), "batch": batch}, **TEXTS)
    return reward, lambda pictures: partial(model.get_image_features, pixel_values=torch.rand(len(pictures), 3, 224, 224))


MODELS: dict[str, LabellingModel] = {
    "a random network of 0.1 million parameters": LabellingModel(64, 60, (16, 32, 64, 128, 256), _small),
    "the embedded model": LabellingModel(192, 12, (8, 16, 32, 64), _embedded),
    "CLIP ViT-B/32": LabellingModel(192, 2, (16, 32, 64), _clip),
}
