"""Examples of moments with and without success from recorded episodes, and measures of a classifier on held-out episodes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.statistics import Interval, wilson
from robo_rl.replay.rows import columns_of
from robo_rl.rewards.images.picture_reward import pictures_of
from robo_rl.rewards.score_statistics import Bin, area_under_curve, expected_calibration_error, reliability
from robo_rl.rewards.success.classifier import ClassifierConfig, SuccessNetwork
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode, Labels

FORM = re.compile(r"(?P<name>\w+)(\[(?P<index>\d+)\])?=(?P<low>[^:]*):(?P<high>[^:]*)")


@dataclass(frozen=True)
class Guard:
    """Further condition of success: the allowed range of one element of an observation."""

    observation: str
    """Name of the observation entry that the condition is about."""
    index: int
    """Number of the element in the entry, from 0."""
    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Guard:
        """Return the guard in a text NAME=LOW:HIGH or NAME[INDEX]=LOW:HIGH, an empty bound for none; raises InvalidSetting."""
        found = FORM.fullmatch(text.replace(" ", ""))
        allowed = "NAME=LOW:HIGH or NAME[INDEX]=LOW:HIGH, such as gripper_opening=0.02:0.06 or object_position[2]=0.1:"
        try:
            if found is None:
                raise ValueError(text)
            low, high = float(found["low"] or "-inf"), float(found["high"] or "inf")
        except ValueError:
            raise InvalidSetting("A guard cannot be read.", got=repr(text), allowed=allowed) from None
        if not low < high:
            raise InvalidSetting("A guard has an empty range.", got=text, allowed="a lower bound below the upper one")
        return cls(found["name"], int(found["index"] or 0), low, high)

    def holds(self, observations: Mapping[str, Array]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return two masks (N,): the condition holds, and the value is finite.

        Raises UnknownName for an unknown entry, InvalidSetting for an element that it does not have.
        """
        if self.observation not in observations:
            raise UnknownName("observation", self.observation, observations)
        found = observations[self.observation]
        found = found.reshape(len(found), -1)
        if self.index >= found.shape[1]:
            allowed = f"0 to {found.shape[1] - 1}"
            raise InvalidSetting(f"{self.observation} has no element {self.index}.", got=self.index, allowed=allowed)
        values = found[:, self.index].astype(np.float64)
        known = np.isfinite(values)
        return known & (np.where(known, values, 0) >= self.low) & (np.where(known, values, 0) <= self.high), known


Floats = npt.NDArray[np.float64]


def observation_of(spec: EnvironmentSpec, camera: str) -> str:
    """Return the name of the camera's observation entry; "" for the float observations.

    Raises UnknownName for an unknown camera, InvalidSetting if there are no float observations.
    """
    cameras = [array.name for array in spec.observation.values() if array.role == "image"]
    if camera in ("", "none"):
        if not columns_of(spec) and (camera or not cameras):
            raise InvalidSetting(f"{spec.name} has no float observations to look at.", got=", ".join(spec.observation))
        return cameras[0] if cameras and not camera else ""
    for name in (camera, f"camera_{camera}"):
        if name in cameras:
            return name
    raise UnknownName("camera", camera, cameras)


def moments_of(spec: EnvironmentSpec, episode: Episode, camera: str) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return moments (T+1, H, W, 3) or (T+1, D), and their validity (T+1,): False if a number is not finite."""
    if camera:
        pictures = pictures_of(episode.observations, camera)
        return pictures, np.ones(len(pictures), np.bool_)
    parts = [episode.observations[name].reshape(len(episode) + 1, -1) for name in columns_of(spec)]
    numbers: Array = np.concatenate(parts, axis=1, dtype=np.float32)
    valid: npt.NDArray[np.bool_] = np.all(np.isfinite(numbers), axis=1)
    return np.where(valid[:, None], numbers, 0).astype(np.float32), valid


def shows_success(episode: Episode, config: ClassifierConfig) -> Floats:
    """Label the T + 1 moments of an episode, (T+1,): 1 for success, 0 for no success, NaN for neither."""
    shown = np.zeros(len(episode) + 1)
    if episode.success:
        shown[max(1, len(shown) - config.last - config.margin) :] = np.nan
        shown[max(1, len(shown) - config.last) :] = 1
    return shown


class Examples(NamedTuple):
    """Moments from which a success classifier learns: pictures or vectors, with labels."""

    moments: Array
    """(N, H, W, 3) pictures, or (N, D) vectors"""
    successes: npt.NDArray[np.bool_]
    """(N,) True for a success"""
    share: float
    """share of successes among all moments, including those left out"""


def examples_of(spec: EnvironmentSpec, episodes: Iterable[Episode], camera: str, config: ClassifierConfig) -> Examples:
    """Return all moments of success, and at most `config.frames` other moments of each episode."""
    kept, labels, won, total = [], [], 0, 0
    for episode in episodes:
        moments, valid = moments_of(spec, episode, camera)
        shown = shows_success(episode, config)
        good, others = (np.flatnonzero(valid & (shown == value)) for value in (1, 0))
        won, total = won + len(good), total + len(good) + len(others)
        others = others[np.linspace(0, len(others) - 1, min(config.frames, len(others))).astype(np.int64)]
        rows = np.concatenate((good, others))
        kept.append(moments[rows])
        labels.append(np.arange(len(rows)) < len(good))
    return Examples(np.concatenate(kept), np.concatenate(labels), won / total)


def split(successes: Sequence[bool | None], config: ClassifierConfig) -> tuple[list[int], list[int]]:
    """Return the numbers of training and of held-out episodes, with the same share of successes and of failures in both.

    Raises InvalidSetting if there are too few successes or failures.
    """
    sides = {
        "successful": [i for i, each in enumerate(successes) if each],
        "failed": [i for i, each in enumerate(successes) if each is False],
    }
    if min(map(len, sides.values())) < config.least:
        got = ", ".join(f"{len(side)} {name}" for name, side in sides.items())
        raise InvalidSetting(
            "There are too few episodes to learn success from.",
            got=got,
            allowed=f"{config.least} or more of each",
            fix="record more, for example with --policy mix:scripted=0.5,random=0.5",
        )
    random, held = np.random.default_rng(config.seed), set[int]()
    for side in sides.values():
        held |= set(random.permutation(side)[: max(1, round(len(side) * config.held_out))].tolist())
    return [i for side in sides.values() for i in side if i not in held], sorted(held)


@dataclass(frozen=True)
class Measured:
    """Accuracy of a success classifier on held-out episodes, with its threshold."""

    threshold: float
    """Probability from which a moment counts as success."""
    false_positives: Interval
    """share of failed episodes with a moment that counts as success; the threshold was set on them"""
    detected: Interval
    """share of successful episodes with such a moment at their end"""
    early: Interval
    """share of successful episodes with such a moment before success"""
    failures: int
    """number of failed episodes"""
    successes: int
    """number of successful episodes"""
    bins: Sequence[Bin]
    """success rate in each range of probability, of single moments"""
    error: float
    """expected calibration error of the probabilities of single moments"""
    area: Interval
    """area under the ROC curve of episodes by their highest probability"""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rates = {name: getattr(self, name) for name in ("false_positives", "detected", "early", "area")}
        numbers: dict[str, Any] = {name: getattr(self, name) for name in ("threshold", "failures", "successes", "error")}
        numbers |= {name: [rate.estimate, rate.low, rate.high] for name, rate in rates.items()}
        return numbers | {"bins": [[each.score, each.rate.estimate, each.n] for each in self.bins]}


def measured(
    network: SuccessNetwork,
    spec: EnvironmentSpec,
    episodes: Iterable[Episode],
    camera: str,
    guard: Guard | None,
    config: ClassifierConfig,
) -> Measured:
    """Determine the threshold of a classifier on held-out episodes, and measure its accuracy, guard included."""
    found = []
    for episode in episodes:
        moments, valid = moments_of(spec, episode, camera)
        seen = guarded(Labels.finite(network.probabilities(moments), valid), guard, episode.observations)
        found.append(_Scored(seen.or_nan, shows_success(episode, config), episode.success))
    failed, won = ([each for each in found if each.success is side] for side in (False, True))
    threshold = max(
        threshold_for(np.array([each.highest for each in failed]), config.false_positives), config.least_probability
    )
    probabilities, labels = (np.concatenate([getattr(each, name) for each in found]) for name in ("probabilities", "shown"))
    known = np.isfinite(labels) & np.isfinite(probabilities)
    bins = reliability(probabilities[known], labels[known] == 1)
    highest = np.array([each.highest for each in found])
    return Measured(
        threshold,
        wilson(sum(each.highest >= threshold for each in failed), len(failed)),
        wilson(sum(each.peak(1) >= threshold for each in won), len(won)),
        wilson(sum(each.peak(0) >= threshold for each in won), len(won)),
        len(failed),
        len(won),
        bins,
        expected_calibration_error(bins),
        area_under_curve(highest, np.array([each.success is True for each in found])),
    )


def threshold_for(highest: Floats, rate: float) -> float:
    """Return the smallest threshold that at most a share `rate` of failed episodes reach.

    highest: (n,) highest probability of each failed episode.
    """
    allowed = math.floor(rate * len(highest))
    return float(np.nextafter(np.float32(np.sort(highest)[::-1][allowed]), np.float32(2)))


class _Scored(NamedTuple):
    probabilities: Floats
    """(T+1,) with the guard; NaN if unknown"""
    shown: Floats
    success: bool | None

    @property
    def highest(self) -> float:
        """Over the moments after an action, as rewards are; 0 if none is known."""
        known = self.probabilities[1:][np.isfinite(self.probabilities[1:])]
        return float(known.max()) if len(known) else 0.0

    def peak(self, shown: int) -> float:
        """Return the highest over the moments that show success (1) or do not (0)."""
        values = self.probabilities[1:][(self.shown[1:] == shown) & np.isfinite(self.probabilities[1:])]
        return float(values.max()) if len(values) else 0.0


def guarded(probabilities: Labels, guard: Guard | None, observations: Mapping[str, Array]) -> Labels:
    """Apply the guard to the probabilities of N moments: 0 where it does not hold, missing where that is unknown."""
    if guard is None:
        return probabilities
    holds, known = guard.holds(observations)
    return Labels(np.where(holds, probabilities.values, np.float32(0)), probabilities.valid & known)
