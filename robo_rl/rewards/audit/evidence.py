"""Gather what a reward says: of every episode, and of spoilt copies of some."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import RoboRLError
from robo_rl.reward_protocols import RewardModel
from robo_rl.rewards.audit.controls import Control, WrongText
from robo_rl.rewards.audit.truth import Progress
from robo_rl.types import Episode, RewardLabels

Floats = npt.NDArray[np.float64]


class Judged(NamedTuple):
    """What a reward says of one episode or clip; NaN where a label is missing."""

    rewards: Floats
    """(T,) what a learner would be paid"""
    scores: Floats
    """(T,) how far it finds that things got: the level behind the rewards"""


Shape = Callable[[Floats], Floats]
"""Makes scores (T,) of rewards (T,)."""


def level(rewards: Floats) -> Floats:
    """Returns the rewards themselves: each says how far things got."""
    return rewards


def gain(rewards: Floats) -> Floats:
    """Returns the sum so far: each reward says how much the step brought; unknown after a missing one."""
    return np.cumsum(rewards)


class Subject(Protocol):
    """What is audited."""

    def judge(self, episode: Episode) -> Judged:
        """Returns what it says of an episode."""


@dataclass(frozen=True)
class AskedModel:
    """A reward model, asked anew."""

    model: RewardModel
    shape: Shape = level
    level_of: RewardModel | None = None
    """The same model with its level as reward, where its rewards are differences of levels; in place of `shape`."""

    def judge(self, episode: Episode) -> Judged:
        """Returns the labels of a copy, so that nothing can be written into the episode."""
        rewards = self.model.label(copy.copy(episode)).or_nan
        scores = self.shape(rewards) if self.level_of is None else self.level_of.label(copy.copy(episode)).or_nan
        return Judged(rewards, scores)


@dataclass(frozen=True)
class WrittenLabels:
    """Labels that lie beside an episode; nobody can be asked about spoilt clips."""

    labels: RewardLabels | None
    shape: Shape = level

    def judge(self, episode: Episode) -> Judged:
        """Returns the labels; all are missing where there are none of the episode."""
        rewards = np.full(len(episode), np.nan) if self.labels is None else self.labels.or_nan
        return Judged(rewards, self.shape(rewards))


def _said_of(spoilt: Episode, asked: Subject, control: Control) -> Judged:
    """Returns what is said of a spoilt clip: nothing where the reward refuses it, as some refuse pictures of another scene."""
    try:
        return asked.judge(spoilt)
    except RoboRLError:
        if isinstance(control, WrongText):  # words that it does not know are no test of whether it reads them
            raise
        return Judged(*np.full((2, len(spoilt)), np.nan))


@dataclass(frozen=True)
class Seen:
    """One episode, without its observations."""

    judged: Judged
    recorded: Floats
    """(T,) recorded rewards"""
    progress: Floats
    """(T,) true progress, NaN where it is not known"""
    success: bool | None


@dataclass(frozen=True)
class Spoilt:
    """What was said of the spoilt copies of some episodes, in the order of `Evidence.asked`."""

    clips: list[Judged] = field(default_factory=list)


@dataclass
class Evidence:
    """All that a verdict rests on."""

    episodes: list[Seen] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    """numbers of the episodes that spoilt copies were made of"""
    controls: dict[str, Spoilt] = field(default_factory=dict)
    repeated: Spoilt = field(default_factory=Spoilt)
    """said of the same clips once more"""
    seconds: float = 0.0
    """spent on the timed steps"""
    fitted_to: int = 0
    """episodes that the reward was fitted to, as far as it knows"""
    timed: int = 0
    """steps of `episodes`, without the first episode, because a model loads its weights then"""


def gather(
    episodes: Iterable[Episode],
    subject: Subject,
    progress: Progress,
    controls: Sequence[tuple[Control, Subject]] = (),
    *,
    clips: int = 10,
    seed: int = 0,
) -> Evidence:
    """Asks about every episode, and about spoilt copies of the first `clips` that did not fail.

    controls: each with whom to ask about its clips, which is another model than `subject` where that was told the words.
    """
    evidence = Evidence(controls={control.name: Spoilt() for control, _ in controls})
    for number, episode in enumerate(episodes):
        start = time.perf_counter()
        judged = subject.judge(episode)
        if number:
            evidence.seconds += time.perf_counter() - start
            evidence.timed += len(episode)
        recorded = episode.rewards.astype(np.float64)
        evidence.episodes.append(Seen(judged, recorded, progress.of(episode), episode.success))
        if controls and episode.success is not False and len(episode) > 1 and len(evidence.asked) < clips:
            evidence.asked.append(number)
            evidence.repeated.clips.append(subject.judge(episode))
            for index, (control, asked) in enumerate(controls):
                spoilt = control.apply(episode, np.random.default_rng([seed, number, index]))
                evidence.controls[control.name].clips.append(_said_of(spoilt, asked, control))
    return evidence
