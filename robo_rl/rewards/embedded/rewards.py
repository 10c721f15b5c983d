"""Rewards, a rater and an image-text model from a folder that `robo-rl reward fit embedded` wrote."""

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
    """Settings of a component that reads an embedded model from a folder."""

    folder: str = ""
    """Folder that `robo-rl reward fit embedded` wrote."""

    def __post_init__(self) -> None:
        require_named(self.folder, "embedded")

    @cached_property
    def model(self) -> EmbeddedModel:
        """The embedded model, loaded at first use."""
        return EmbeddedModel.load(Path(self.folder))


@dataclass(frozen=True, kw_only=True)
class EmbeddedReward(FromFolder, PictureReward):
    """Base class of rewards that an embedded model computes from pictures and an instruction."""

    name: ClassVar[str]
    """Name of the entry point, which recipes use."""

    def __post_init__(self) -> None:
        FromFolder.__post_init__(self)
        PictureReward.__post_init__(self)

    @abstractmethod
    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        """Return scores (N,) in [0, 1] of the instruction.

        firsts, now: (N, F) descriptions of the first pictures of the episodes, and of the present ones.
        """

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of weights and settings; the folder does not count."""
        settings = {name: value for name, value in self.settings().items() if name != "folder"}
        return self.name, hash_of(self.model.weights_hash.encode(), json.dumps(settings, sort_keys=True).encode())

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return the score of the instruction in each picture.

        Raises:
            InvalidSetting: There is no instruction.
            UnknownName: A word is unknown.
            SpecMismatch: The pictures are from another camera or scene, or of another size.
        """
        if not instruction:
            fix = f"--reward.settings.instruction '{self.model.origin.instructions[0]}'"
            raise InvalidSetting("The episode has no instruction, and the model needs one.", fix=fix)
        self.model.require_camera(self.camera)
        now, began = self.model.describe(pictures), self._described_firsts(firsts)
        values = self.rate(began, now, instruction)
        return Labels.finite(values)

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yield the labels of each episode, in order.

        Several episodes are labelled at once, one for each of torch's threads.

        For a small network this is faster than dividing the computation of one picture.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from prefetched(self.label, episodes, at_once=threads)
        finally:
            torch.set_num_threads(threads)

    def _described_firsts(self, firsts: Pictures) -> Tensor:
        """Return descriptions (N, F); a picture equal to the one before, as within an episode, is encoded only once."""
        differs = np.ones(len(firsts), np.bool_)
        differs[1:] = (firsts[1:] != firsts[:-1]).any((1, 2, 3))
        return self.model.describe(firsts[differs])[torch.from_numpy(differs.cumsum() - 1)]


@dataclass(frozen=True, kw_only=True)
class EmbeddedProgress(EmbeddedReward):
    """Reward that is the progress of the instruction, 0 to 1, by a model trained here on simulated pictures."""

    name = "embedded-progress"

    @override
    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        return self.model.progress(firsts, now, instruction)


@dataclass(frozen=True, kw_only=True)
class EmbeddedCompletion(EmbeddedReward):
    """Reward that is the probability that the instruction is completed, by a model trained here on simulated pictures."""

    name = "embedded-completion"

    @override
    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        return self.model.completion(firsts, now, instruction)


@dataclass(frozen=True, kw_only=True)
class EmbeddedShuffled(EmbeddedReward):
    """Control for rewards of the embedded model: its features are in another, fixed order, so that scores mean nothing.

    The scores depend on pictures and are as large as the model's; a policy must not learn the task from them.
    """

    name = "embedded-shuffled"
    answer: Literal["progress", "completion"] = "progress"
    """Reward that the control replaces: progress or completion."""
    seed: int = 0
    """Seed of the order of features."""

    def rate(self, firsts: Tensor, now: Tensor, instruction: str) -> npt.NDArray[np.float32]:
        """Return the model's scores of features that are shuffled with a fixed seed: a control, which takes the order away."""
        order = torch.from_numpy(np.random.default_rng(self.seed).permutation(now.shape[1]))
        ask = self.model.progress if self.answer == "progress" else self.model.completion
        return ask(firsts[:, order], now[:, order], instruction)


@dataclass(frozen=True, kw_only=True)
class EmbeddedImageText(FromFolder):
    """Image-text model that embeds pictures and sentences in one space, by an embedded model fitted to one scene.

    It knows one scene, one camera and a few dozen words.
    """

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the model, and a hash of its weights."""
        return "embedded", self.model.weights_hash

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, E) of N pictures; raises SpecMismatch for pictures of another size or scene."""
        return self.model.embed_described(self.model.describe(pictures))

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, E) of N sentences; raises UnknownName for an unknown word."""
        return self.model.embed_texts(texts)


@dataclass(frozen=True, kw_only=True)
class EmbeddedRater(FromFolder):
    """Rater that prefers the segment with more progress of the instruction, by the embedded model."""

    kind: ClassVar[Literal["model"]] = "model"
    camera: str = "front"
    """Camera of the pictures."""
    instruction: str = ""
    """Task in words; empty for the instruction of the episodes."""
    compares: Literal["level", "gain"] = "level"
    """level: mean progress in a segment; gain: progress from its start to its end. A reward fitted to levels pays for waiting
    at high progress, and may make success, which ends an episode, a loss."""
    margin: float = 0.01
    """Difference up to which two segments count as equal, 0 to below 1; about the error of the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"margin": (0 <= self.margin < 1, "0 to 1")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the rater, and a hash of the model's weights and of the settings."""
        return "embedded", hash_of(self._progress.identity[1].encode(), f"{self.compares} {self.margin}".encode())

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Compare two segments: 0 if the first made more progress, 1 if the second, 0.5 if equal.

        Returns "skip" if a picture has no score.
        """
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
        """Return the progress at the start of a segment and after each of its steps, NaN if there is none."""
        pictures = pictures_of(segment.episode.observations, self.camera)
        shown = pictures[segment.start : segment.stop + 1]
        firsts = np.broadcast_to(pictures[:1], shown.shape)
        scores = self._progress.score(shown, firsts, self.instruction or segment.episode.instruction)
        return np.where(scores.valid, scores.values, np.float32(np.nan))

    @cached_property
    def _progress(self) -> EmbeddedProgress:
        return EmbeddedProgress(folder=self.folder, camera=self.camera, instruction=self.instruction)
