"""A small benchmark of reward models: short clips with a sentence and a score of 1 to 5 that follows from state.

After RoboReward: the same clip with another sentence (counterfactual), the same sentence with a clip that stops earlier
(clipped). Both come from the simulator's state, so that no label is a guess: a sentence that is called wrong is false by its
predicate.

    1 no progress, 2 a little, 3 half, 4 nearly, 5 done; (score - 1) / 4 is what a model in [0, 1] should answer

N pictures, I instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.reward_protocols import RewardModel
from robo_rl.rewards.audit.figures import Figure, by_episode, mean_of, rank_correlations, unknown
from robo_rl.rewards.embedded.pictures import CaptionedPictures
from robo_rl.rewards.pictures import PICTURES_ALONE
from robo_rl.types import Episode

SCORES = (1, 2, 3, 4, 5)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clip:
    """From a start to a moment of the same scene, and a sentence."""

    picture: int
    instruction: int
    words: str
    score: int
    is_counterfactual: bool
    """Something else is done in it, and what the sentence says is not."""


class Scored(NamedTuple):
    """How a reward model did."""

    error: Figure
    """mean absolute error of the score; not measured where an answer is outside of [0, 1]"""
    correlation: Figure
    """Spearman's, of answer and score"""
    wrong: Figure
    """mean answer, as a score, to clips in which something else is done; not measured likewise"""
    text_alone: Figure
    """mean absolute error of the best that can be said from the sentence alone, other scenes having been seen"""
    missing: Figure
    """share of clips without an answer"""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {name: figure.to_json() for name, figure in self._asdict().items()}


def scores_of(data: CaptionedPictures) -> npt.NDArray[np.int64]:
    """Returns (N, I) scores, by how much of what was left at the start is done; 5 only where the instruction is complete.

    0 where the clip has no score: where the scene lacks a thing that is named, or all was done at the start.
    """
    began = data.progress[data.firsts]
    left = 1 - began
    share = np.where(left > 0, (data.progress - began) / np.where(left > 0, left, 1), 0)
    scores = np.where(data.complete, 5, 1 + np.clip(np.floor(4 * share), 0, 3).astype(np.int64))
    return np.where(_are_there(data) & ~data.complete[data.firsts] & (left > 0), scores, 0)


def clips_of(data: CaptionedPictures, each: int = 40, seed: int = 0) -> list[Clip]:
    """Returns clips, for every instruction as many of each score, at most `each`: the words alone tell nothing.

    Clips in which another instruction is complete are preferred where the score is 1 or 2. Raises InvalidSetting where no
    instruction has clips of every score.
    """
    random, scores = np.random.default_rng(seed), scores_of(data)
    chosen: list[Clip] = []
    for index, wordings in enumerate(data.instructions):
        others = np.delete(data.complete, index, axis=1).any(axis=1) & ~data.complete[:, index]
        found = {score: np.flatnonzero(scores[:, index] == score) for score in SCORES}
        count = min(each, *map(len, found.values()))
        for score, pictures in found.items():
            dealt = random.permutation(pictures)
            if score <= 2:
                dealt = dealt[np.argsort(~others[dealt], kind="stable")]
            for picture in dealt[:count].tolist():
                words = wordings[int(random.integers(len(wordings)))]
                chosen.append(Clip(picture, index, words, score, bool(others[picture]) and score <= 2))
    if not chosen:
        raise InvalidSetting("No instruction has clips of every score.", got=f"{len(data)} pictures", fix="draw more of them")
    return chosen


def _are_there(data: CaptionedPictures) -> npt.NDArray[np.bool_]:
    """Returns (N, I): all that an instruction names is in the scene."""
    there: npt.NDArray[np.bool_] = np.all(np.isfinite(data.positions), axis=2)
    slots = [[data.slots.index(name) for name in names] for names in data.named]
    return np.stack([there[:, columns].all(axis=1) for columns in slots], axis=1)


def episode_of(data: CaptionedPictures, clip: Clip) -> Episode:
    """Returns a clip as an episode of one step; its reward is what should be answered."""
    pictures = data.pictures[[data.firsts[clip.picture], clip.picture]]
    action = np.zeros((1, 1), np.float32)
    return Episode(
        observations={f"camera_{data.camera}": pictures},
        actions=action,
        policy_actions=action,
        rewards=np.array([(clip.score - 1) / 4], np.float32),
        sources=np.zeros(1, np.int8),
        timestamps=np.arange(2, dtype=np.float64),
        terminated=False,
        truncated=True,
        stop_reason="time_limit",
        success=clip.score == SCORES[-1],
        seed=None,
        spec_fingerprint=PICTURES_ALONE,
        instruction=clip.words,
    )


def scored(model: RewardModel, data: CaptionedPictures, clips: Sequence[Clip], shown: Iterable[Clip] | None = None) -> Scored:
    """Returns how a reward model does; `shown` passes the clips on one by one, and may show how far that got."""
    answers = np.array([model.label(episode_of(data, clip)).or_nan[-1] for clip in (clips if shown is None else shown)])
    truth = np.array([clip.score for clip in clips], np.float64)
    scenes = np.unique([int(data.firsts[clip.picture]) for clip in clips], return_inverse=True)[1]
    known = np.isfinite(answers)
    is_unit = bool(known.any()) and float(answers[known].min()) >= 0 and float(answers[known].max()) <= 1
    errors = np.abs(1 + 4 * answers - truth)
    wrong = np.array([clip.is_counterfactual for clip in clips])
    return Scored(
        _by_scene(errors, scenes) if is_unit else unknown("clips"),
        _correlation(answers[known], truth[known], scenes[known]),
        _by_scene(np.where(wrong, 1 + 4 * answers, np.nan), scenes) if is_unit else unknown("clips"),
        _by_scene(np.abs(_from_text(clips, truth, scenes) - truth), scenes),
        mean_of((~known).astype(np.float64), "clips"),
    )


def _by_scene(values: Floats, scenes: npt.NDArray[np.int64]) -> Figure:
    """Returns the mean of the known values, with an interval over scenes: clips of one scene are alike."""
    known = np.isfinite(values)
    index = np.unique(scenes[known], return_inverse=True)[1]
    sums, sizes = (np.bincount(index, weights) for weights in (values[known], np.ones(int(known.sum()))))
    return by_episode(lambda counts: counts @ sums / (counts @ sizes), len(sums), n=int(known.sum()), of="clips")


def _correlation(answers: Floats, truth: Floats, scenes: npt.NDArray[np.int64]) -> Figure:
    index = np.unique(scenes, return_inverse=True)[1]
    scenes_there = int(index.max(initial=-1)) + 1
    return by_episode(
        lambda counts: rank_correlations(answers, truth, counts[:, index]), scenes_there, n=len(answers), of="clips"
    )


def _from_text(clips: Sequence[Clip], truth: Floats, scenes: npt.NDArray[np.int64]) -> Floats:
    """Returns for each clip the median score of its very words in other scenes; of all clips where there are none."""
    found = np.full(len(clips), np.median(truth))
    words: dict[str, list[int]] = {clip.words: [] for clip in clips}
    for index, clip in enumerate(clips):
        words[clip.words].append(index)
    for index, clip in enumerate(clips):
        others = [other for other in words[clip.words] if scenes[other] != scenes[index]]
        if others:
            found[index] = np.median(truth[others])
    return found


def facts_of(clips: Sequence[Clip]) -> dict[str, Any]:
    """Returns how many clips there are, of which scores, and the first one as an example."""
    by_score = {str(score): sum(clip.score == score for clip in clips) for score in SCORES}
    return {"clips": len(clips), "by_score": by_score, "counterfactual": sum(c.is_counterfactual for c in clips)} | {
        "example": asdict(clips[0])
    }
