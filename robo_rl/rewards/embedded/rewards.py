"""Rewards, a rater and an image-text model from one folder that `robo-rl reward fit embedded` wrote."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.embedded.model import EmbeddedModel
from robo_rl.rewards.fitted_folder import require_named
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import PictureReward, Pictures, pictures_of
from robo_rl.rewards.preferences.raters import Preference, Segment
from robo_rl.system.prefetch import prefetched
from robo_rl.types import Episode, Labels, RewardLabels


@dataclass(frozen=True, kw_only=True)
class FromFolder:
    """Settings of a component that uses the embedded model of a folder."""

    folder: str = ""
    """Folder that `robo-rl reward fit embedded` wrote."""

    def __post_init__(self) -> None:
        require_named(self.folder, "embedded")

    @cached_property
    def model(self) -> EmbeddedModel:
        """Loaded when it is first needed."""
        return EmbeddedModel.load(Path(self.folder))


@dataclass(frozen=True, kw_only=True)
class EmbeddedReward(FromFolder, PictureReward):
    """A reward of the embedded model."""

    name: ClassVar[str]
    """Name of the entry point."""

    def __post_init__(self) -> None:
        FromFolder.__post_init__(self)
        PictureReward.__post_init__(self)

    @abstractmethod
    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        """Return (N,) in [0, 1] for described pictures."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of weights and settings; not of the folder's name."""
        settings = {name: value for name, value in self.settings().items() if name != "folder"}
        return self.name, hash_of(self.model.weights_hash.encode(), json.dumps(settings, sort_keys=True).encode())

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return the score of the instruction in each picture.

        Raises InvalidSetting without an instruction, UnknownName for a word that is not known, SpecMismatch for pictures of
        another camera, scene or size.
        """
        if not instruction:
            fix = f"--reward.settings.instruction '{self.model.origin.instructions[0]}'"
            raise InvalidSetting("The episode has no instruction, and the model needs one.", fix=fix)
        self.model.require_camera(self.camera)
        now, began = self.model.describe(pictures), self._described_firsts(firsts)
        values = self.rate(began, now, instruction)
        return Labels.finite(values)

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yield the labels of episodes in their order, several at once: one for each of torch's threads.

        A small network gains more by this than by sharing out the sums of one picture.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from prefetched(self.label, episodes, at_once=threads)
        finally:
            torch.set_num_threads(threads)

    def _described_firsts(self, firsts: Pictures) -> Tensor:
        """Return (N, F); pictures that repeat the one before, as those of one episode do, are encoded once."""
        differs = np.ones(len(firsts), np.bool_)
        differs[1:] = (firsts[1:] != firsts[:-1]).any((1, 2, 3))
        return self.model.describe(firsts[differs])[torch.from_numpy(differs.cumsum() - 1)]


@dataclass(frozen=True, kw_only=True)
class EmbeddedProgress(EmbeddedReward):
    """Progress of the instruction, 0 to 1, by a model that was trained here on pictures of the simulator."""

    name = "embedded-progress"

    @override
    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        return self.model.progress(firsts, now, instruction)


@dataclass(frozen=True, kw_only=True)
class EmbeddedCompletion(EmbeddedReward):
    """The probability that the instruction is done, by a model that was trained here on pictures of the simulator."""

    name = "embedded-completion"

    @override
    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        return self.model.completion(firsts, now, instruction)


@dataclass(frozen=True, kw_only=True)
class EmbeddedShuffled(EmbeddedReward):
    """A control: the embedded model with its encoder's features in another, fixed order, so that its scores mean nothing.

    Its scores follow from pictures as the model's do and are as large; a policy must not learn the task from them.
    """

    name = "embedded-shuffled"
    answer: Literal["progress", "completion"] = "progress"
    """The reward that it replaces."""
    seed: int = 0
    """Seed of the order."""

    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        """Return the model's scores of features (N, F) in permuted order."""
        order = torch.from_numpy(np.random.default_rng(self.seed).permutation(now.shape[1]))
        ask = self.model.progress if self.answer == "progress" else self.model.completion
        return ask(firsts[:, order], now[:, order], instruction)


@dataclass(frozen=True, kw_only=True)
class EmbeddedImageText(FromFolder):
    """The embedded model's pictures and sentences in one space; knows one scene by one camera and a few dozen words."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the weights."""
        return "embedded", self.model.weights_hash

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Return (N, E), each of length 1; raise SpecMismatch for pictures of another size or scene."""
        return self.model.embed_described(self.model.describe(pictures))

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (N, E), each of length 1; raise UnknownName for a word that is not known."""
        return self.model.embed_texts(texts)


@dataclass(frozen=True, kw_only=True)
class EmbeddedRater(FromFolder):
    """Prefers the segment with more progress of the instruction, by the embedded model."""

    kind: ClassVar[Literal["model"]] = "model"
    camera: str = "front"
    """Camera of the pictures."""
    instruction: str = ""
    """The task; empty for the instruction of the episodes."""
    compares: Literal["level", "gain"] = "level"
    """level: the mean progress of a segment; gain: its progress from first to last step. A reward that is fitted to levels pays
    waiting at high progress, and may make success, which ends an episode, a loss."""
    margin: float = 0.01
    """Difference up to which two segments are equal; about the error of the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"margin": (0 <= self.margin < 1, "0 to 1")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of weights and settings."""
        return "embedded", hash_of(self._progress.identity[1].encode(), f"{self.compares} {self.margin}".encode())

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Return 0, 0.5 or 1; "skip" if a picture got no score."""
        worth = self._gain if self.compares == "gain" else self._mean
        difference = worth(second) - worth(first)
        if not np.isfinite(difference):
            return "skip"
        return 0.5 if abs(difference) <= self.margin else float(difference > 0)

    def _mean(self, segment: Segment) -> float:
        return float(self._scores(segment)[1:].mean())  # step t is judged by the picture after its action

    def _gain(self, segment: Segment) -> float:
        scores = self._scores(segment)
        return float(scores[-1] - scores[0])

    def _scores(self, segment: Segment) -> npt.NDArray[np.float32]:
        """Return the progress at the beginning of a segment and after each of its steps, NaN if there is none."""
        pictures = pictures_of(segment.episode.observations, self.camera)
        shown = pictures[segment.start : segment.stop + 1]
        firsts = np.broadcast_to(pictures[:1], shown.shape)
        scores = self._progress.score(shown, firsts, self.instruction or segment.episode.instruction)
        return np.where(scores.valid, scores.values, np.float32(np.nan))

    @cached_property
    def _progress(self) -> EmbeddedProgress:
        return EmbeddedProgress(folder=self.folder, camera=self.camera, instruction=self.instruction)
