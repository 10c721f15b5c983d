"""Rewards of judges: asked about some moments of an episode, and held in between. What is not answered is missing."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.cached_judge import CachedJudge, cached_judge
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.pictures import PictureReward, Pictures, pictures_of
from robo_rl.types import Episode, Labels, Metrics, RewardLabels

Places = npt.NDArray[np.intp]
"""Numbers of pictures of an episode, rising, the first one of them 0."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Settings of whatever asks a judge."""

    name: ClassVar[str]
    words: ClassVar[str]
    """Everything that the judge is told; another one is another reward."""

    judge: str = "endpoint"
    """Who answers: "endpoint" for any chat-completions server, "chance" guesses. What it is told goes into judge_settings."""
    judge_settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the judge, such as {model: gpt-4o-2024-11-20, base_url: "https://api.openai.com/v1", key_variable: KEY}."""

    @cached_property
    def asking(self) -> CachedJudge:
        """The judge, asked with care."""
        return cached_judge(self.judge, self.judge_settings)

    def ask_by(self, asking: CachedJudge) -> None:
        """Has it be asked by somebody else, such as one who shares the answers with others."""
        vars(self)["asking"] = asking  # where the property keeps its own

    def identity_with(self, settings: Mapping[str, object]) -> tuple[str, str]:
        """Returns a name that holds the judge's, and a hash of the judge, the words and all other settings."""
        own = {name: value for name, value in settings.items() if name not in ("judge", "judge_settings")}
        judge, judge_hash = self.asking.identity
        told = json.dumps([judge_hash, self.words, own], sort_keys=True)
        return f"{self.name} by {judge}", hash_of(told.encode())

    def spent(self) -> Metrics:
        """Returns how much was asked, and what that cost."""
        return self.asking.spent()

    def report(self) -> str:
        """Returns lines that say what was asked, what it cost and how many answers are missing why."""
        return self.asking.report()


@dataclass(frozen=True, kw_only=True)
class EpisodeJudge(Judged, PictureReward):
    """A reward from scores of some moments of an episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asking  # noqa: B018 - wrong settings of the judge are found before any episode is read

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and a hash of judge, words and settings."""
        return self.identity_with(self.settings())

    @abstractmethod
    def places(self, count: int) -> Places:
        """Returns which of the pictures of an episode are asked about."""

    @abstractmethod
    def scores_at(self, pictures: Pictures, places: Places, instruction: str) -> Labels:
        """Returns one score for each place; pictures: all (T+1, H, W, 3) of the episode."""

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Raises InvalidSetting, unless a subclass can judge a picture by itself and the first one."""
        raise InvalidSetting(f"{self.name} judges whole episodes, not single pictures.", fix="robo-rl label; or judge-progress")

    def label(self, episode: Episode) -> RewardLabels:
        """Returns rewards; the score of a moment holds until the next one that is asked about, missing ones as well."""
        pictures = pictures_of(episode.observations, self.camera)
        instruction = required(self.instruction or episode.instruction)
        scores = Labels.missing(len(pictures))
        if len(episode):
            places = self.places(len(pictures))
            scores = held(self.scores_at(pictures, places, instruction), places, len(pictures))
        if self.mode == "level":
            scores = Labels(scores.values[1:], scores.valid[1:])
        rewards = self.rewards(scores, terminated=episode.terminated)
        return rewards.by(self.identity, hash_of(self.words.encode(), instruction.encode()))


def held(scores: Labels, places: Places, count: int) -> Labels:
    """Returns a score for each of `count` pictures: that of the last place up to it, also where this one is missing."""
    last = np.searchsorted(places, np.arange(count), side="right") - 1
    return Labels(scores.values[last], scores.valid[last])


def scores_of(values: Sequence[float | None]) -> Labels:
    """Returns scores; None is a missing one."""
    valid = np.array([value is not None for value in values], np.bool_)
    return Labels(np.array([value or 0.0 for value in values], np.float32), valid)


def required(instruction: str | None) -> str:
    """Returns the instruction; raises InvalidSetting where there is none."""
    if not instruction:
        raise InvalidSetting(
            "What shall be done? The episode does not say it.", fix='--settings instruction="pick up the cube"'
        )
    return instruction
