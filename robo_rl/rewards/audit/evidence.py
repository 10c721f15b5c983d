"""Gather a reward's labels of every episode and of spoilt copies of some, with the recorded progress.

A sound reward labels a spoilt clip differently, or the same, depending on the control. A control returns another episode of
as many steps and never changes the one it is given. A reward is compared with the true progress, and never sees it.
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
    """A measure of true progress."""

    words: str
    of: Callable[[Episode], Floats]
    """Returns the progress (T,) after each step of an episode; NaN if it is not known."""

    def __str__(self) -> str:
        return self.words


def _time_to_success(rest: str) -> Progress:
    """Minus the steps left until an episode succeeds; unknown for episodes that do not succeed."""
    del rest

    def of(episode: Episode) -> Floats:
        steps = len(episode)
        return np.arange(1 - steps, 1, dtype=np.float64) if episode.success else np.full(steps, np.nan)

    return Progress("time to success", of)


def _reward(term: str) -> Progress:
    """The recorded reward, or one of its terms; raises UnknownName for a term that was not recorded."""

    def of(episode: Episode) -> Floats:
        if term and term not in episode.reward_terms:
            raise UnknownName("reward term", term, episode.reward_terms)
        return (episode.reward_terms[term] if term else episode.rewards).astype(np.float64)

    return Progress(f"the reward term {term}" if term else "the recorded reward", of)


def _running_sum(term: str) -> Progress:
    """The sum so far of the recorded reward or one of its terms, for rewards that pay differences."""
    reward = _reward(term)
    return Progress(f"the sum so far of {reward}", lambda episode: np.cumsum(reward.of(episode)))


def _nearness(rest: str) -> Progress:
    """Minus the distance of two observations, or the length of one, such as that from gripper to goal."""
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
    """Return the progress "time-to-success", "reward[:TERM]", "sum[:TERM]" or "near:OBSERVATION[,OBSERVATION]"."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise UnknownName("kind of progress", kind, KINDS)
    return KINDS[kind](rest)


class Control(NamedTuple):
    """A kind of spoilt clips."""

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
"""Every picture is black: rewards that remain do not come from the pictures."""
SHUFFLED_TIME = Control("time-shuffled clips", _shuffled)
"""All but the first observation in an order by chance: values that still rise are read from the clock."""
REVERSED = Control("reversed clips", _reversed)
"""Backwards in time: progress is undone."""
LOITERING = Control("loitering clips", _held)
"""From the middle on nothing moves any more."""
HIDDEN_REWARDS = Control("recorded rewards hidden", _unrewarded)
"""Without recorded rewards and success: labels that change were read from them."""
WRONG_TEXT = "wrong text"


def wrong_text(text: str) -> Control:
    """Return the control with another instruction; text: empty if the reward gets the wrong words in another way."""
    return Control(WRONG_TEXT, lambda episode, _: replace(episode, instruction=text or episode.instruction))


def held_from(steps: int) -> int:
    """Return the step from which LOITERING holds an episode of that many steps still: its first half is real."""
    return (steps + 1) // 2


def pictures_in(episode: Episode) -> Mapping[str, Array]:
    """Return the observations that are pictures."""
    return {name: array for name, array in episode.observations.items() if array.dtype == np.uint8 and array.ndim == 4}


def _with_rows(episode: Episode, rows: npt.NDArray[np.int64]) -> Episode:
    return replace(episode, observations={name: array[rows] for name, array in episode.observations.items()})


class ClipScores(NamedTuple):
    """Scores of one episode or clip; NaN if a label is missing."""

    rewards: Floats
    """(T,) as paid to a learner"""
    scores: Floats
    """(T,) progress as the reward sees it: the level behind the rewards"""


Shape = Callable[[Floats], Floats]
"""Makes scores (T,) of rewards (T,)."""


def level(rewards: Floats) -> Floats:
    """Return the rewards themselves, each of which is a level of progress."""
    return rewards


def gain(rewards: Floats) -> Floats:
    """Return the sum so far, for rewards that are differences; unknown after a missing one."""
    return np.cumsum(rewards)


Subject = Callable[[Episode], ClipScores]
"""Scores an episode: the reward under audit."""


def scored_by(model: RewardModel, shape: Shape = level) -> Subject:
    """Return the scoring by a model; of one that pays differences, scores are its level."""
    level_of = _with(model, mode="level") if getattr(model, "mode", "level") != "level" else None

    def score(episode: Episode) -> ClipScores:  # of a copy, so that nothing can be written into the episode
        rewards = model.label(copy.copy(episode)).or_nan
        return ClipScores(rewards, shape(rewards) if level_of is None else level_of.label(copy.copy(episode)).or_nan)

    return score


def stored_scores(labels: RewardLabels | None, shape: Shape = level) -> Subject:
    """Return the stored labels of an episode, all missing if there are none; of no use for spoilt clips."""

    def score(episode: Episode) -> ClipScores:
        rewards = np.full(len(episode), np.nan) if labels is None else labels.or_nan
        return ClipScores(rewards, shape(rewards))

    return score


def _scores_of(spoilt: Episode, subject: Subject, control: Control) -> ClipScores:
    """Return the scores of a spoilt clip, all missing if the reward rejects it, as some do with another scene."""
    try:
        return subject(spoilt)
    except RoboRLError:
        if control.name == WRONG_TEXT:  # unknown words do not test if it reads them
            raise
        return ClipScores(*np.full((2, len(spoilt)), np.nan))


@dataclass(frozen=True)
class Seen:
    """One episode, without its observations."""

    clip: ClipScores
    recorded: Floats
    """(T,) recorded rewards"""
    progress: Floats
    """(T,) true progress, NaN if it is not known"""
    success: bool | None


@dataclass
class Evidence:
    """All data that a verdict rests on."""

    episodes: list[Seen] = field(default_factory=list)
    spoilt: list[int] = field(default_factory=list)
    """numbers of the episodes that spoilt copies were made of"""
    controls: dict[str, list[ClipScores]] = field(default_factory=dict)
    """scores of the spoilt copies of these, by the name of the control"""
    repeated: list[ClipScores] = field(default_factory=list)
    """scores of the same clips, computed again"""
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
    """Score every episode, and spoilt copies of the first `clips` episodes that did not fail.

    controls: each with the model that scores its clips; another model than `subject` if that has words as settings.
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
    """Return True if a model looks at pictures: it declares so, or its labels change when they are blackened."""
    if isinstance(model, PictureReward):
        return model.looks_at_pictures
    subject, black = scored_by(model), BLANK_PICTURES.apply(episode, np.random.default_rng(0))
    return bool(pictures_in(episode)) and agreeing(subject(episode), subject(black)) < 1


def controls_of(subject: Subject, *, sees: bool) -> list[tuple[Control, Subject]]:
    """Return the controls of a reward with the model that scores them; pictures are spoilt if it `sees` them."""
    of_pictures = (BLANK_PICTURES, SHUFFLED_TIME, REVERSED, LOITERING) if sees else ()
    return [(control, subject) for control in (HIDDEN_REWARDS, *of_pictures)]


def wrong_instruction(model: RewardModel, text: str, shape: Shape) -> tuple[Control, Subject]:
    """Return the control with the wrong text, and the model without an instruction among its settings."""
    uninstructed = _with(model, instruction="") if getattr(model, "instruction", "") else model
    return wrong_text(text), scored_by(uninstructed, shape)


def _with(model: RewardModel, **settings: Any) -> RewardModel:
    """Return a model with other settings; the model itself if it has none of that name."""
    if not dataclasses.is_dataclass(model) or isinstance(model, type):
        return model
    names = {field.name for field in dataclasses.fields(model)}
    changed: RewardModel = replace(model, **settings) if names >= settings.keys() else model
    return changed


def agreeing(first: ClipScores, second: ClipScores) -> float:
    """Return the share of steps with the very same reward, missing or not."""
    return float(np.mean((first.rewards == second.rewards) | (np.isnan(first.rewards) & np.isnan(second.rewards))))
