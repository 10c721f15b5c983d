"""Base of rewards from pictures: inputs, scores, and how rewards are computed from scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.identity import hash_of
from robo_rl.types import Array, Episode, Labels, RewardLabels

Numbers = npt.NDArray[np.floating[Any]]
Pictures = npt.NDArray[np.uint8]
"""N pictures (N, H, W, 3) uint8 RGB."""
PICTURES_ALONE = ""
"""Fingerprint of an episode that has only pictures and an instruction, and comes from no known environment."""


@dataclass(frozen=True, kw_only=True)
class PictureReward(RewardModel):
    """Base class of rewards computed from single pictures, the first picture of the episode and an instruction.

    The reward of step t depends on the picture after its action. Labelling and training share `score` and `rewards`.
    """

    reads_words: ClassVar[bool] = True
    """True if the instruction influences scores; an audit then also tries a wrong one."""
    camera: str = "front"
    """Camera of the pictures: the observation entry camera_NAME, or the full name of an entry."""
    instruction: str = ""
    """Task in words; empty for the instruction of the episode."""
    mode: Literal["level", "delta", "potential"] = "level"
    """How the reward of step t follows from scores s. level: s(t+1), which pays for waiting at a high score; delta: s(t+1) -
    s(t); potential: discount * s(t+1) - s(t), with s(t+1) = 0 at the end of the task, which does not change the best policies
    (Ng, Harada & Russell 1999) and alone makes all policies equally good."""
    discount: float = 0.99
    """Discount of the mode potential, above 0 to 1: that of the learner."""

    def __post_init__(self) -> None:
        require_allowed(self, {"discount": (0 < self.discount <= 1, "above 0, up to 1")})

    @property
    def looks_at_pictures(self) -> bool:
        """True if the reward reads pictures; a learned one may read states instead."""
        return True

    @property
    def eye(self) -> str:
        """Camera whose pictures the reward reads; with an empty `camera` the one that the fit determined."""
        return self.camera

    @property
    def hears_instruction(self) -> bool:
        """True if the reward reads the episode's instruction; False if its words are settings."""
        return self.reads_words

    @property
    def prompt_hash(self) -> str:
        """Hash of the words that the reward uses, so that labels by other words are not mixed with these."""
        return hash_of(self.instruction.encode())

    @abstractmethod
    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return one score for each of N pictures.

        Args:
            pictures: (N, H, W, 3) pictures to score.
            firsts: (N, H, W, 3) first picture of the episode of each picture.
            instruction: Task in words, or None; a model that needs one raises InvalidSetting.
        """

    def label(self, episode: Episode) -> RewardLabels:
        """Return the rewards of an episode; a step is valid if all scores that it needs are."""
        pictures = pictures_of(episode.observations, self.camera)
        shown = pictures if self.mode != "level" else pictures[1:]
        firsts = np.broadcast_to(pictures[:1], shown.shape)
        scores = self.score(shown, firsts, self.instruction or episode.instruction)
        paid = self.rewards(scores, terminated=episode.terminated)
        values = self.combined(paid.values, self.states({name: array[1:] for name, array in episode.observations.items()}))
        return Labels(values, paid.valid).by(self.identity, self.prompt_hash)

    def rewards(self, scores: Labels, *, terminated: bool = False) -> Labels:
        """Return rewards from the scores of n consecutive pictures: n rewards in the mode level, n - 1 in the others.

        With s(i) the score of picture i: level pays s(i), delta s(i+1) - s(i), potential discount * s(i+1) - s(i).

        Args:
            scores: Scores of n pictures.
            terminated: True if the task ended with the last picture. In the mode potential its score then counts 0: the value
                after the end is 0, so that any other potential would pay for ending (Ng, Harada & Russell 1999, with gamma <
                1).
        """
        values, valid = np.where(scores.valid, scores.values, 0).astype(np.float32), np.array(scores.valid)
        if self.mode == "level":
            return Labels(values, valid)
        if terminated and self.mode == "potential" and len(values):
            values[-1], valid[-1] = 0.0, True
        discount = self.discount if self.mode == "potential" else 1.0
        valid = valid[1:] & valid[:-1]
        return Labels(np.where(valid, discount * values[1:] - values[:-1], 0).astype(np.float32), valid)

    def states(self, observations: Mapping[str, Array]) -> Numbers:
        """Return further inputs (N, K) of the reward from N observations after their steps; K = 0 for pictures alone."""
        return np.zeros((len(next(iter(observations.values()))), 0))

    def combined(self, values: Numbers, states: Numbers) -> npt.NDArray[np.float32]:
        """Combine the scores (N,) of the pictures with the further inputs (N, K) into rewards (N,)."""
        return np.asarray(values, np.float32)

    def settings(self) -> Mapping[str, object]:
        """Return all settings of the reward by name, from which `identity` computes its hash."""
        return MappingProxyType({item.name: getattr(self, item.name) for item in fields(self)})


def pictures_of(observations: Mapping[str, Array], camera: str) -> Pictures:
    """Return the pictures of a camera, (T+1, H, W, 3); raises InvalidSetting with the existing cameras if there are none."""
    name = camera if camera in observations else f"camera_{camera}"
    if name not in observations:
        cameras = [key for key, array in observations.items() if array.dtype == np.uint8 and array.ndim == 4]
        named = cameras[0].removeprefix("camera_") if cameras else ""
        arguments = "--environment.arguments.cameras [front]; of cars: --environment.arguments.birdseye_rgb 64"
        drawn = f"record with a camera (robo-rl record ENV {arguments})"
        raise InvalidSetting(
            f"There are no pictures of the camera {camera!r}.",
            got=", ".join(observations),
            allowed=", ".join(cameras) or "none: nothing was drawn",
            fix=f"--reward.settings.camera {named}" if named else drawn,
        )
    pictures: Pictures = observations[name]
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[-1] != 3:
        raise InvalidSetting(
            f"{name} is not an RGB picture.", got=f"{pictures.shape[1:]} {pictures.dtype}", allowed="(H, W, 3) uint8"
        )
    return pictures
