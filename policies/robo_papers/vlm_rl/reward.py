"""Contrasting language goals (CLG): a picture between an undesired and a desired sentence; alone, and for a car.

The language part of VLM-RL (Huang et al. 2024, arXiv:2412.15544), and its combination with driving.
Differs from the authors' code: the interval that z is brought to [0, 1] by was 0 to 0.03, found for one CLIP and one pair of
sentences; here it is found on pictures of the task itself (`robo-rl reward calibrate`), kept in the settings, and refused with
another model, other sentences or another camera.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import pictures_of
from robo_rl.rewards.images.similarity import SHORTEST, Direction, SimilarityReward
from robo_rl.types import Array, Episode

Numbers = npt.NDArray[np.floating[Any]]
PERCENTILES = (5.0, 95.0)
FEWEST = 5
"""Smallest number of episodes from which an interval is found."""
RESAMPLES = 1000
ERRORS = 3
"""Number of standard errors that the interval's width must exceed; with two, it could hang on a single episode."""


@dataclass(frozen=True, kw_only=True)
class ContrastingLanguageGoals(SimilarityReward):
    """Reward that is the safety of a picture in [0, 1]: 0 if it is like the undesired sentence, 1 if like the desired (CLG)."""

    method: ClassVar[str] = "clg"
    undesired: str
    """Sentence for the undesired state, such as "two cars have collided with each other on the road"."""
    desired: str
    """Sentence for the desired state, such as "the road is clear with no car accidents"."""
    low: float | None = None
    """Difference of the cosines up to which safety is 1; None until `robo-rl reward calibrate` has found it."""
    high: float | None = None
    """Difference of the cosines from which on safety is 0."""
    found_for: str = ""
    """Hash of the model, sentences and camera for which the interval was found; empty for an interval by hand."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.low is None) != (self.high is None) or (self.low is not None and not self.low < (self.high or 0.0)):
            raise InvalidSetting(
                "The interval is none.", got=f"low {self.low}, high {self.high}", allowed="low below high, or neither"
            )

    @property
    def hears_instruction(self) -> bool:
        """False, because the words are settings and not the instruction."""
        return False

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """The two sentences by their role."""
        return {"undesired": (self.undesired,), "desired": (self.desired,)}

    @property
    def subject(self) -> str:
        """Hash of model, sentences and camera, for which an interval holds."""
        return hash_of(*(part.encode() for part in (*self.embedder.identity, self.undesired, self.desired, self.camera)))

    def contrast(self, pictures: Direction) -> npt.NDArray[np.float64]:
        """Return z = cos(s, undesired) - cos(s, desired) for (N, D) pictures; raise InvalidSetting for equal sentences."""
        difference = self.direction([self.undesired]) - self.direction([self.desired])
        if np.linalg.norm(difference) < SHORTEST:
            raise InvalidSetting(
                "The image-text model does not tell the two sentences apart.",
                got=[self.undesired, self.desired],
                fix="other words",
            )
        return np.asarray(np.einsum("nd,d->n", pictures, difference))

    def values(self, pictures: Direction, instruction: str | None) -> npt.NDArray[np.float64]:
        """Return safety; raise InvalidSetting without an interval, and with one for another model, sentence or camera."""
        if self.low is None or self.high is None:
            raise InvalidSetting(
                "Contrasting language goals are not calibrated.",
                fix="robo-rl reward calibrate REWARD.yaml --dataset DATASET --out CALIBRATED.yaml",
            )
        if self.found_for not in ("", self.subject):
            raise InvalidSetting(
                "The interval was found for another model, other sentences or another camera.",
                got=self.subject,
                allowed=self.found_for,
                fix="robo-rl reward calibrate again",
            )
        return safety(self.contrast(pictures), self.low, self.high)

    def calibrated(
        self, episodes: Iterable[Episode], percentiles: tuple[float, float] = PERCENTILES
    ) -> tuple[ContrastingLanguageGoals, float]:
        """Find the interval on these episodes; return this reward with it, and the standard error of its width.

        Raises InvalidSetting if the interval says nothing.
        """
        seen = (self.embedded(pictures_of(episode.observations, self.camera)) for episode in episodes)
        low, high, noise = interval([self.contrast(pictures[valid]) for pictures, valid in seen], percentiles)
        return replace(self, low=low, high=high, found_for=self.subject), noise


def safety(z: Numbers, low: float, high: float) -> npt.NDArray[np.float64]:
    """Return the safety c = 1 - clip((z - low) / (high - low), 0, 1) for differences of cosines z, in their shape."""
    return np.asarray(1 - np.clip((np.asarray(z, np.float64) - low) / (high - low), 0, 1))


def require_enough(episodes: int) -> None:
    """Raise InvalidSetting if there are too few episodes to find an interval on."""
    if episodes < FEWEST:
        raise InvalidSetting("Too few episodes to calibrate with.", got=episodes, allowed=f"{FEWEST} or more")


def interval(episodes: Sequence[Numbers], percentiles: tuple[float, float] = PERCENTILES) -> tuple[float, float, float]:
    """Return two percentiles of z over all pictures, and the standard error of their distance by bootstrap over the episodes.

    Raises InvalidSetting if the distance is below three standard errors, or rounding: z says nothing about these episodes.
    """
    require_enough(len(episodes))
    low, high = np.percentile(np.concatenate(episodes), percentiles).tolist()
    generator = np.random.default_rng(0)
    widths = []
    for _ in range(RESAMPLES):
        drawn = generator.integers(len(episodes), size=len(episodes))
        widths.append(np.diff(np.percentile(np.concatenate([episodes[index] for index in drawn]), percentiles)))
    noise = float(np.std(widths))
    if high - low < max(ERRORS * noise, SHORTEST):
        raise InvalidSetting(
            "The two sentences say nothing about these pictures.",
            got=f"{high - low:.2g} between the percentiles {percentiles[0]:g} and {percentiles[1]:g}",
            allowed=f"above {max(ERRORS * noise, SHORTEST):.2g}, three standard errors",
            fix="other sentences, another image-text model, or episodes in which both happen",
        )
    return low, high, noise


def synthesis(safety: Numbers, speed: Numbers, top_speed: float, *factors: Numbers) -> npt.NDArray[np.float64]:
    """Return r = (1 - |v - c v_top| / v_top) times the factors, each in [0, 1], such as centring, angle and steadiness.

    speed, top_speed: [m/s]. If all is dangerous, standing still earns most.
    """
    reward = 1 - abs(np.asarray(speed) - np.asarray(safety) * top_speed) / top_speed
    return np.asarray(np.prod([reward, *np.broadcast_arrays(reward, *factors)[1:]], axis=0))


SIDEWAYS, TURNED = 3.0, math.pi / 2
"""[m] and [rad] offset and angle from which on the driving reward is 0."""


@dataclass(frozen=True, kw_only=True)
class DrivingGoals(ContrastingLanguageGoals):
    """Reward for driving (VLM-RL): speed, as fast as looks safe in the picture, times keeping to the lane.

        r = s * max(1 - |offset| / 3 m, 0) * max(1 - |angle| / 90 degrees, 0), and s alone if s < 0
        s = (c v_top - |v - c v_top|) / v_top

    c is the safety. Speed, offset and angle are read from observations of a driving environment: `velocity` [m/s] forward and
    to the right, `route`, points ahead on the middle of the lane [m], both in the car's frame.

    Differs from VLM-RL: there s = 1 - |v - c v_top| / v_top, which pays 1 - c for standing in every step until the episode is
    cut. Here that is subtracted, so that standing pays nothing, a metre within the safe speed pays the same at any speed,
    arriving loses nothing, and more than twice the safe speed has a cost at any place in the lane. No factor for steadiness,
    which needs earlier offsets; no reward of -10 at the end of an episode, so that only the pictures show collisions; the
    interval of c is measured, not given.
    """

    method: ClassVar[str] = "driving-clg"
    top_speed: float = 8.0
    """[m/s] speed that is wanted if all is safe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self,
            {"top_speed": (self.top_speed > 0, "above 0 [m/s]"), "mode": (self.mode == "level", "level, a reward by itself")},
        )

    def states(self, observations: Mapping[str, Array]) -> Numbers:
        """Return speed [m/s], offset [m] and angle [rad] (N, 3) of observations; raise InvalidSetting."""
        if missing := [name for name in ("velocity", "route") if name not in observations]:
            raise InvalidSetting(
                "Driving goals need a car.", got=f"no {', '.join(missing)}", allowed="observations of a driving environment"
            )
        route = np.asarray(observations["route"], np.float64)
        (forward, aside), (dx, dy) = route[:, 0].T, (route[:, 1] - route[:, 0]).T
        length = np.maximum(np.hypot(dx, dy), 1e-6)
        offset, angle = (forward * dy - aside * dx) / length, np.arctan2(dy, dx)
        return np.stack([np.asarray(observations["velocity"], np.float64)[:, 0], offset, angle], axis=1)

    def combined(self, values: Numbers, states: Numbers) -> npt.NDArray[np.float32]:
        """Return the driving rewards (N,) for safeties (N,) and states (N, 3): speed, offset, angle."""
        speed, offset, angle = np.asarray(states, np.float64).T
        centring, heading = 1 - np.abs(offset) / SIDEWAYS, 1 - np.abs(angle) / TURNED
        paid = synthesis(values, speed, self.top_speed) - synthesis(values, np.zeros_like(speed), self.top_speed)
        keeping = np.maximum(centring, 0) * np.maximum(heading, 0)
        return np.where(paid > 0, paid * keeping, paid).astype(np.float32)
