"""The embedded model, a small image-text model: its training domain, its answers about pictures, and its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.rewards.embedded.descent import Reads, Sees
from robo_rl.rewards.embedded.encoder import PictureEncoder
from robo_rl.rewards.embedded.heads import Heads, ReadByTower, Vocabulary
from robo_rl.rewards.fitted_folder import bytes_of, fitted, save_fitted, tensors_of
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import Pictures

BATCH = 16
"""Pictures encoded at once; 32 to 64 are a fifth to a half slower, as the windows no longer fit into the cache."""
TOLERANCE = 24
"""Grey levels by which a still pixel may differ; other renderers draw edges a little differently."""
MOST_COMPARED = 2048
"""Still pixels that are compared in a picture, evenly spread; comparing all of them took longer than the model."""
MOST_CHANGED = 0.25
"""Share of the compared pixels that may differ more than TOLERANCE, because people or cables may be in the picture."""


@dataclass(frozen=True)
class Origin:
    """Training domain of an embedded model: environment, camera, words; its scores mean nothing on other pictures."""

    environment: str
    camera: str
    size: int
    """[pixel] height and width of the pictures"""
    slots: tuple[str, ...]
    words: tuple[str, ...]
    """Words of the vocabulary, which the model can read."""
    instructions: tuple[str, ...]
    """Examples of instructions that the model was trained with."""
    recorded: str = ""
    """Arguments with which the environment records such pictures."""
    has_task: bool = True
    """True if the model was trained with the instructions of the environment's episodes."""
    reads: Reads = "words"
    """Reader of sentences: the vocabulary, or the text encoder all-MiniLM-L6-v2."""
    sees: Sees = "pixels"
    """First stage of the picture encoder: its own convolutions, or feature maps of EfficientNet-Lite0."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Settings and measures of the fit, by name."""


class EmbeddedModel:
    """Small image-text model of one scene: picture encoder and heads that read sentences, with their training domain."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        by_tower = origin.reads == "minilm"
        self.vocabulary = ReadByTower() if by_tower else Vocabulary(origin.words)
        self.encoder = PictureEncoder(len(origin.slots), origin.size, by_tower=origin.sees == "efficientnet-lite0")
        self.heads = Heads(len(origin.slots), None if by_tower else len(origin.words))

    @property
    def weights_hash(self) -> str:
        """Hash of all parameters and of the training domain."""
        domain = f"{self.origin.environment} {self.origin.camera} {self.origin.words}".encode()
        return hash_of(domain, *bytes_of(self._arrays()))

    @torch.no_grad()
    def describe(self, pictures: Pictures) -> Tensor:
        """Return descriptions (N, F) of pictures; raises SpecMismatch for another size or scene than in training."""
        self.require_scene(pictures[:0])
        parts = [torch.zeros(0, 4 * len(self.origin.slots))]
        for start in range(0, len(pictures), BATCH):
            shown = pictures[start : start + BATCH]
            self.require_scene(shown)  # its floats are twelve times the pictures
            parts.append(self.encoder.describe(torch.from_numpy(np.array(shown))))
        return torch.cat(parts)

    def positions(self, described: Tensor) -> npt.NDArray[np.float32]:
        """Return positions (N, S, 3) [m] for descriptions (N, F); an invisible object has the mean of all positions."""
        things = described.view(len(described), -1, 4)
        return np.asarray(things[..., 1:] / 10 + self.encoder.middle, np.float32)

    def progress(self, firsts: Tensor, now: Tensor, sentence: str) -> npt.NDArray[np.float32]:
        """Return the progress (N,) of the instruction, in [0, 1].

        firsts, now: (N, F) descriptions of the first pictures of the episodes, and of the present ones.
        """
        found: npt.NDArray[np.float32] = self._relate(firsts, now, sentence)[:, 0].clamp(0, 1).numpy()
        return found

    def completion(self, firsts: Tensor, now: Tensor, sentence: str) -> npt.NDArray[np.float32]:
        """Return the probability (N,) that the instruction is completed.

        firsts, now: (N, F) descriptions of the first pictures of the episodes, and of the present ones.
        """
        found: npt.NDArray[np.float32] = self._relate(firsts, now, sentence)[:, 1].sigmoid().numpy()
        return found

    @torch.no_grad()
    def embed_described(self, described: Tensor) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, E) for descriptions (N, F) of pictures."""
        found: npt.NDArray[np.float32] = self.heads.embed_pictures(described).numpy()
        return found

    @torch.no_grad()
    def embed_texts(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, E) of sentences; raises UnknownName for an unknown word."""
        numbers = torch.from_numpy(self.vocabulary.numbers(sentences))
        found: npt.NDArray[np.float32] = self.heads.embed_texts(numbers).numpy()
        return found

    def require_camera(self, camera: str) -> None:
        """Raise SpecMismatch unless `camera` is the camera of the training."""
        if camera.removeprefix("camera_") != self.origin.camera:
            self._refuse([f"camera: {camera!r} of the pictures, {self.origin.camera!r} of the model"])

    def require_scene(self, pictures: Pictures) -> None:
        """Raise SpecMismatch for pictures of another size, or of another scene: still pixels of the training differ."""
        size = self.origin.size
        if pictures.shape[1:] != (size, size, 3):
            self._refuse([f"size: {pictures.shape[1:]} of the pictures, {(size, size, 3)} of the model"])
        still = np.flatnonzero(self.encoder.still.numpy())
        if not len(pictures) or not len(still):
            return
        some = still[:: -(-len(still) // MOST_COMPARED)]
        usual = self.encoder.usual.numpy().reshape(-1, 3)[some]
        far = np.abs(pictures.reshape(len(pictures), -1, 3).take(some, 1) - usual) > TOLERANCE
        changed = (far[..., 0] | far[..., 1] | far[..., 2]).mean(1)  # any(-1) takes longer than the model, of so short an axis
        if changed.max() > MOST_CHANGED:
            self._refuse([f"scene: {changed.max():.0%} of the pixels that never changed in training differ"])

    def save(self, folder: Path) -> None:
        """Write the model durably into a new folder."""
        origin = {name: getattr(self.origin, name) for name in Origin.__dataclass_fields__}
        save_fitted(folder, "embedded", {"arrays": self._arrays(), "origin": origin})

    @classmethod
    def load(cls, folder: Path) -> EmbeddedModel:
        """Return the model in a folder; raises CheckpointCorrupt if it is damaged, InvalidSetting for another version."""
        state = fitted(folder, "embedded")
        tuples = {name: tuple(state["origin"][name]) for name in ("slots", "words", "instructions")}
        model = cls(Origin(**(state["origin"] | tuples)))
        arrays = tensors_of(state["arrays"])
        if arrays.keys() != model._arrays().keys():
            raise InvalidSetting(f"{folder} holds an embedded model of an earlier version.", fix="fit it again")
        for prefix, network in model._networks().items():
            network.load_state_dict({name: arrays[f"{prefix}.{name}"] for name in network.state_dict()})
        return model

    @torch.no_grad()
    def _relate(self, firsts: Tensor, now: Tensor, sentence: str) -> Tensor:
        said = self.heads.read(torch.from_numpy(self.vocabulary.numbers([sentence])))
        found: Tensor = self.heads.relate(firsts, now, said.expand(len(now), -1))
        return found

    def _networks(self) -> dict[str, torch.nn.Module]:
        return {"encoder": self.encoder, "heads": self.heads}

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        networks = self._networks().items()
        return {
            f"{prefix}.{name}": np.ascontiguousarray(tensor.numpy())
            for prefix, network in networks
            for name, tensor in network.state_dict().items()
        }

    def _refuse(self, differences: list[str]) -> None:
        origin = self.origin
        recorded = origin.recorded or f"cameras=[{origin.camera}] image_size={origin.size}"
        fix = f"pictures of {origin.environment}, {recorded}, or fit a model to these"
        raise SpecMismatch("Pictures and embedded model", differences, fix=fix)
