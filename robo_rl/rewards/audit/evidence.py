"""Collect what an audit compares: a reward's labels of all episodes and of spoilt copies of some, and the true progress.

A spoilt copy is made by a control; some controls must change the labels of a sound reward, others must not. A control returns
an episode with as many steps and never changes its argument. The true progress is only compared with; the reward never sees it.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.types import Array, Episode, RewardLabels

Floats = npt.NDArray[np.float64]


class Progress(NamedTuple):
    """Measure of the true progress of an episode, with which an audit compares a reward."""

    words: str
    of: Callable[[Episode], Floats]
    """Returns the progress (T,) after each step of an episode; NaN where it is unknown."""

    def __str__(self) -> str:
        return self.words


def _time_to_success(rest: str) -> Progress:
    """Return the progress "minus the number of steps until the episode succeeds"; unknown for other episodes."""
    del rest

    def of(episode: Episode) -> Floats:
        steps = len(episode)
        return np.arange(1 - steps, 1, dtype=np.float64) if episode.success else np.full(steps, np.nan)

    return Progress("time to success", of)


def _reward(term: str) -> Progress:
    """Return the progress "recorded reward", or one of its terms; its function raises UnknownName for a term not recorded."""

    def of(episode: Episode) -> Floats:
        if term and term not in episode.reward_terms:
            raise UnknownName("reward term", term, episode.reward_terms)
        return (episode.reward_terms[term] if term else episode.rewards).astype(np.float64)

    return Progress(f"the reward term {term}" if term else "the recorded reward", of)


def _running_sum(term: str) -> Progress:
    """Return the progress "sum so far of the recorded reward, or of a term", for rewards that pay differences."""
    reward = _reward(term)
    return Progress(f"the sum so far of {reward}", lambda episode: np.cumsum(reward.of(episode)))


def _nearness(rest: str) -> Progress:
    """Return the progress "minus the distance of two observations, or length of one", such as that from gripper to goal."""
    names = tuple(rest.split(","))
    if not all(names) or len(names) > 2:
        raise InvalidSetting("near: takes one observation or two.", got=rest, allowed="near:NAME or near:NAME,NAME")

    def of(episode: Episode) -> Floats:
        if missing := [name for name in names if name not in episode.observations]:
            raise UnknownName("observation", missing[0], episode.observations)
        places: list[Array] = [episode.observations[name][1:].astype(np.float64) for name in names]
        away = places[0] - places[1] if len(places) > 1 else places[0]
        distances: Floats = np.linalg.norm(away.reshape(len(away), -1), axis=1)
        return -distances

    return Progress(f"nearness of {' and '.join(names)}" if len(names) > 1 else f"smallness of {names[0]}", of)


KINDS: Mapping[str, Callable[[str], Progress]] = {
    "time-to-success": _time_to_success,
    "reward": _reward,
    "sum": _running_sum,
    "near": _nearness,
}


def progress_of(text: str) -> Progress:
    """Return the measure of progress that a text names.

    It is "time-to-success", "reward[:TERM]", "sum[:TERM]" or "near:OBSERVATION[,OBSERVATION]".
    """
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise UnknownName("kind of progress", kind, KINDS)
    return KINDS[kind](rest)


class Control(NamedTuple):
    """Way to spoil a copy of an episode (a control), whose effect on the labels an audit examines."""

    name: str
    apply: Callable[[Episode, np.random.Generator], Episode]


def _blackened(episode: Episode, _: np.random.Generator) -> Episode:
    black = {name: np.zeros_like(pictures) for name, pictures in pictures_in(episode).items()}
    return replace(episode, observations={**episode.observations, **black})


def _shuffled(episode: Episode, random: np.random.Generator) -> Episode:
    return _with_rows(episode, np.concatenate(([0], 1 + random.permutation(len(episode)))))


def _reversed(episode: Episode, _: np.random.Generator) -> Episode:
    return _with_rows(episode, np.arange(len(episode), -1, -1))


def _held(episode: Episode, _: np.random.Generator) -> Episode:
    return _with_rows(episode, np.minimum(np.arange(len(episode) + 1), held_from(len(episode))))


def _unrewarded(episode: Episode, _: np.random.Generator) -> Episode:
    nothing = np.zeros_like(episode.rewards)
    return replace(episode, rewards=nothing, reward_terms={}, success=None, stop_reason="unknown")


BLANK_PICTURES = Control("blank pictures", _blackened)
"""All pictures are black: labels that stay the same do not depend on pictures."""
SHUFFLED_TIME = Control("time-shuffled clips", _shuffled)
"""All observations except the first are in random order: scores that still rise follow the clock."""
REVERSED = Control("reversed clips", _reversed)
"""Time runs backwards: progress is undone."""
LOITERING = Control("loitering clips", _held)
"""Nothing moves in the second half of the clip: a sound reward pays for no progress there."""
HIDDEN_REWARDS = Control("recorded rewards hidden", _unrewarded)
"""Recorded rewards and success are removed from the episode: labels that change were computed from them."""
WRONG_TEXT = "wrong text"


def wrong_text(text: str) -> Control:
    """Return the control in which the episode has another instruction.

    text: the other instruction; empty if the reward gets its wrong words in another way.
    """
    return Control(WRONG_TEXT, lambda episode, _: replace(episode, instruction=text or episode.instruction))


def held_from(steps: int) -> int:
    """Return the step from which the control LOITERING holds an episode of `steps` steps still; earlier steps are real."""
    return (steps + 1) // 2


def pictures_in(episode: Episode) -> Mapping[str, Array]:
    """Return the observations that are pictures, by name."""
    return {name: array for name, array in episode.observations.items() if array.dtype == np.uint8 and array.ndim == 4}


def _with_rows(episode: Episode, rows: npt.NDArray[np.int64]) -> Episode:
    return replace(episode, observations={name: array[rows] for name, array in episode.observations.items()})


class ClipScores(NamedTuple):
    """Scores of an episode or clip; NaN where a label is missing."""

    rewards: Floats
    """(T,) rewards as a learner would get them"""
    scores: Floats
    """(T,) progress according to the reward: the level that the rewards are computed from"""


Shape = Callable[[Floats], Floats]
"""Function that turns rewards (T,) into scores (T,), levels of progress."""


def level(rewards: Floats) -> Floats:
    """Return scores equal to the rewards (T,): for rewards that are themselves levels of progress."""
    return rewards


def gain(rewards: Floats) -> Floats:
    """Return scores as the running sum of the rewards (T,): for rewards that are differences; NaN after a missing one."""
    return np.cumsum(rewards)


Subject = Callable[[Episode], ClipScores]
"""Reward model under audit: function that returns the scores of an episode."""


def scored_by(model: RewardModel, shape: Shape = level) -> Subject:
    """Return a function that scores an episode by a model; `shape` turns its rewards into levels of progress."""
    level_of = _with(model, mode="level") if getattr(model, "mode", "level") != "level" else None

    def score(episode: Episode) -> ClipScores:  # of a copy, so that nothing can be written into the episode
        rewards = model.label(copy.copy(episode)).or_nan
        return ClipScores(rewards, shape(rewards) if level_of is None else level_of.label(copy.copy(episode)).or_nan)

    return score


def stored_scores(labels: RewardLabels | None, shape: Shape = level) -> Subject:
    """Return a function that gives an episode its stored labels as scores (None: all missing).

    It cannot score spoilt clips, which have no stored labels.
    """

    def score(episode: Episode) -> ClipScores:
        rewards = np.full(len(episode), np.nan) if labels is None else labels.or_nan
        return ClipScores(rewards, shape(rewards))

    return score


def _scores_of(spoilt: Episode, subject: Subject, control: Control) -> ClipScores:
    """Return the scores of a spoilt clip; all NaN if the reward rejects it, as some rewards do with another scene."""
    try:
        return subject(spoilt)
    except RoboRLError:
        if control.name == WRONG_TEXT:  # unknown words do not test if it reads them
            raise
        return ClipScores(*np.full((2, len(spoilt)), np.nan))


@dataclass(frozen=True)
class Seen:
    """Data of one episode that an audit keeps: recorded rewards and true progress, without the observations."""

    clip: ClipScores
    recorded: Floats
    """(T,) recorded rewards"""
    progress: Floats
    """(T,) true progress; NaN where it is unknown"""
    success: bool | None


@dataclass
class Evidence:
    """All data from which an audit computes its verdict: episodes, spoilt copies, their scores, and times."""

    episodes: list[Seen] = field(default_factory=list)
    spoilt: list[int] = field(default_factory=list)
    """indices in `episodes` of those with spoilt copies"""
    controls: dict[str, list[ClipScores]] = field(default_factory=dict)
    """scores of the spoilt copies, by name of the control"""
    repeated: list[ClipScores] = field(default_factory=list)
    """scores of the same episodes without a control, computed a second time"""
    seconds: float = 0.0
    """[s] time that it took to score the `timed` steps"""
    fitted_to: int = 0
    """number of episodes that the reward was fitted to, if it knows"""
    timed: int = 0
    """number of steps of all episodes except the first, in which a model loads its weights"""


def gather(
    episodes: Iterable[Episode],
    subject: Subject,
    progress: Progress,
    controls: Sequence[tuple[Control, Subject]] = (),
    *,
    clips: int = 10,
    seed: int = 0,
) -> Evidence:
    """Score each episode, and spoilt copies of the first `clips` episodes that did not fail.

    Args:
        episodes: Recorded episodes.
        subject: Reward under audit.
        progress: Measure of the true progress.
        controls: Each control with the reward that scores its clips. It is not `subject` if that has words in its settings.
        clips: Number of episodes of which spoilt copies are made.
        seed: Seed of the controls that draw.
    """
    evidence = Evidence(controls={control.name: [] for control, _ in controls})
    for number, episode in enumerate(episodes):
        start = time.perf_counter()
        said = subject(episode)
        if number:
            evidence.seconds += time.perf_counter() - start
            evidence.timed += len(episode)
        recorded = episode.rewards.astype(np.float64)
        evidence.episodes.append(Seen(said, recorded, progress.of(episode), episode.success))
        if controls and episode.success is not False and len(episode) > 1 and len(evidence.spoilt) < clips:
            evidence.spoilt.append(number)
            evidence.repeated.append(subject(episode))
            for index, (control, asked) in enumerate(controls):
                spoilt = control.apply(episode, np.random.default_rng([seed, number, index]))
                evidence.controls[control.name].append(_scores_of(spoilt, asked, control))
    return evidence


def reads_pictures(model: RewardModel, episode: Episode) -> bool:
    """Return True if a model uses pictures: it declares it, or its labels change when they are black."""
    if isinstance(model, PictureReward):
        return model.looks_at_pictures
    subject, black = scored_by(model), BLANK_PICTURES.apply(episode, np.random.default_rng(0))
    return bool(pictures_in(episode)) and agreeing(subject(episode), subject(black)) < 1


def controls_of(subject: Subject, *, sees: bool) -> list[tuple[Control, Subject]]:
    """Return the controls to try on a reward, each with the function that scores its clips.

    sees: True to include those that spoil pictures.
    """
    of_pictures = (BLANK_PICTURES, SHUFFLED_TIME, REVERSED, LOITERING) if sees else ()
    return [(control, subject) for control in (HIDDEN_REWARDS, *of_pictures)]


def wrong_instruction(model: RewardModel, text: str, shape: Shape) -> tuple[Control, Subject]:
    """Return the control with the wrong instruction, and a function that scores its clips.

    The function uses the model without the instruction in its settings, which would override the wrong one.
    """
    uninstructed = _with(model, instruction="") if getattr(model, "instruction", "") else model
    return wrong_text(text), scored_by(uninstructed, shape)


def _with(model: RewardModel, **settings: Any) -> RewardModel:
    """Return a model with changed settings; the same model if it lacks one of them."""
    if not dataclasses.is_dataclass(model) or isinstance(model, type):
        return model
    names = {field.name for field in dataclasses.fields(model)}
    changed: RewardModel = replace(model, **settings) if names >= settings.keys() else model
    return changed


def agreeing(first: ClipScores, second: ClipScores) -> float:
    """Return the share of steps in which two labellings have exactly equal rewards, or both none."""
    return float(np.mean((first.rewards == second.rewards) | (np.isnan(first.rewards) & np.isnan(second.rewards))))
