"""Rewards of pictures: inputs, scores, and rewards made of scores."""

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
"""(N, H, W, 3) RGB"""
PICTURES_ALONE = ""
"""Fingerprint of an episode of pictures and an instruction, of no known environment."""


@dataclass(frozen=True, kw_only=True)
class PictureReward(RewardModel):
    """A reward that follows from single pictures, the first one of their episode and an instruction.

    Step t takes the picture after its action. Online and offline share `score` and `rewards`.
    """

    reads_words: ClassVar[bool] = True
    """True if the instruction counts; an audit then also tries a wrong one."""
    camera: str = "front"
    """Camera of the pictures: the observation camera_<name>, or an observation's full name."""
    instruction: str = ""
    """The task; empty for the instruction of the episode."""
    mode: Literal["level", "delta", "potential"] = "level"
    """level: s(t+1), which pays waiting if it is high; delta: s(t+1) - s(t); potential: discount * s(t+1) - s(t), which
    does not change the best policies (Ng, Harada & Russell 1999), if the potential counts 0 when the task ended.
    Alone it makes all policies equally good."""
    discount: float = 0.99
    """Discount of the potential: that of the learner."""

    def __post_init__(self) -> None:
        require_allowed(self, {"discount": (0 < self.discount <= 1, "above 0, up to 1")})

    @property
    def looks_at_pictures(self) -> bool:
        """True if it looks at pictures; a learned one may look at states instead."""
        return True

    @property
    def eye(self) -> str:
        """Camera of the pictures, also if `camera` is empty and the fit decides it."""
        return self.camera

    @property
    def hears_instruction(self) -> bool:
        """True if it reads the episode's instruction; False if its words are settings."""
        return self.reads_words

    @property
    def prompt_hash(self) -> str:
        """A hash of its words."""
        return hash_of(self.instruction.encode())

    @abstractmethod
    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return one score for each of N pictures.

        firsts: (N, H, W, 3), the first picture of each one's episode. instruction: may be None; a model that needs one raises
        InvalidSetting.
        """

    def label(self, episode: Episode) -> RewardLabels:
        """Return rewards; a step is valid if all the scores it needs are."""
        pictures = pictures_of(episode.observations, self.camera)
        shown = pictures if self.mode != "level" else pictures[1:]
        firsts = np.broadcast_to(pictures[:1], shown.shape)
        scores = self.score(shown, firsts, self.instruction or episode.instruction)
        paid = self.rewards(scores, terminated=episode.terminated)
        values = self.combined(paid.values, self.states({name: array[1:] for name, array in episode.observations.items()}))
        return Labels(values, paid.valid).by(self.identity, self.prompt_hash)

    def rewards(self, scores: Labels, *, terminated: bool = False) -> Labels:
        """Return rewards: one for each score at "level", else one for each two that follow each other.

        terminated: True if the task ended with the last picture. Its potential is then 0 for any picture: the value after
        the end is 0, so any other potential would pay for ending (Ng, Harada & Russell 1999, with gamma < 1).
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
        """Return further inputs (N, K) from N observations after their steps; K = 0 for a reward of pictures alone."""
        return np.zeros((len(next(iter(observations.values()))), 0))

    def combined(self, values: Numbers, states: Numbers) -> npt.NDArray[np.float32]:
        """Return rewards (N,) made of those of the pictures and of the states (N, K)."""
        return np.asarray(values, np.float32)

    def settings(self) -> Mapping[str, object]:
        """Return all settings by name, for `identity`."""
        return MappingProxyType({item.name: getattr(self, item.name) for item in fields(self)})


def pictures_of(observations: Mapping[str, Array], camera: str) -> Pictures:
    """Return the pictures of a camera, (T+1, H, W, 3); raise InvalidSetting naming the cameras there are."""
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
