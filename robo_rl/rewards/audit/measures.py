"""Numbers of an audit: agreement of a reward with the recorded truth, and its scores of spoilt clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.evaluation.figures import (
    Figure,
    by_episode,
    close_pair_accuracy,
    episode_correlation,
    mean_of,
    pair_accuracy,
    pooled,
    ratio_of,
    step_correlation,
    unknown,
)
from robo_rl.rewards.audit.evidence import LOITERING, WRONG_TEXT, ClipScores, Evidence, held_from
from robo_rl.rewards.score_statistics import area_under_curve, value_order_correlation
from robo_rl.types import Array

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ControlFigures:
    """Figures of the scores of one kind of clips: the real episodes, or copies spoilt by one control."""

    name: str
    order: Figure
    """correlation of scores with time, in the order shown to the reward"""
    gain: Figure
    """last score minus first score"""
    last: Figure
    """last score"""
    paid: Figure
    """mean reward per step"""


def agreement(evidence: Evidence) -> dict[str, Figure]:
    """Compute how far a reward agrees with the recorded truth: name -> figure, such as rank correlations."""
    seen = evidence.episodes
    rewards, scores = [each.clip.rewards for each in seen], [each.clip.scores for each in seen]
    recorded, progress = [each.recorded for each in seen], [each.progress for each in seen]
    by_reward, by_progress = pooled(rewards, recorded), pooled(scores, progress)
    sums, lengths = np.array([each.sum() for each in rewards]), np.array([float(len(each)) for each in rewards])
    returns, means = np.array([each.sum() for each in recorded]), np.array([mean(each) for each in recorded])
    return {
        "reward, steps": step_correlation(by_reward),
        "progress, steps": step_correlation(by_progress),
        "mean reward, episodes": episode_correlation(np.array([mean(each) for each in rewards]), means),
        "return, episodes": episode_correlation(sums, returns),
        "length and return, episodes": episode_correlation(lengths, returns),
        "reward, pairs": pair_accuracy(by_reward),
        "reward, close pairs": close_pair_accuracy(by_reward),
        "progress, pairs": pair_accuracy(by_progress),
        "progress, close pairs": close_pair_accuracy(by_progress),
        "success by last score": _separation(evidence, [last(each) for each in scores]),
        "success by mean reward": _separation(evidence, [mean(each) for each in rewards]),
        "order in time": mean_of([order(each.clip) for each in seen if each.success], "successful episodes"),
    }


def scale(evidence: Evidence) -> dict[str, Figure]:
    """Compute scale, share of missing labels and noise of a reward: name -> figure."""
    seen = [each.clip for each in evidence.episodes]
    lengths = np.array([len(each.rewards) for each in seen])
    gaps = np.array([np.isnan(each.rewards).sum() for each in seen])
    known = [each.rewards[np.isfinite(each.rewards)] for each in seen]
    sums = np.array([[part.sum(), part @ part, len(part)] for part in known]).reshape(-1, 3)
    steps = int(lengths.sum())
    return {
        "missing": by_episode(lambda counts: counts @ gaps / (counts @ lengths), len(seen), n=steps, of="steps"),
        "missing in successes": _missing(evidence, True),
        "missing in failures": _missing(evidence, False),
        "mean": by_episode(lambda counts: _moments(counts @ sums)[0], len(seen), n=int(sums[:, 2].sum()), of="steps"),
        "deviation": by_episode(lambda counts: _moments(counts @ sums)[1], len(seen), n=int(sums[:, 2].sum()), of="steps"),
        "roughness": mean_of([_roughness(each.scores) for each in seen], "episodes"),
        "unlike when asked again": _unlike(evidence),
    }


def controls(evidence: Evidence) -> list[ControlFigures]:
    """Compute the figures of the real clips and of each kind of spoilt clips."""
    kinds = {"as recorded": originals(evidence)} | evidence.controls
    return [
        ControlFigures(
            name,
            mean_of([order(clip) for clip in clips], "clips"),
            mean_of([ends(clip.scores) for clip in clips], "clips"),
            mean_of([last(clip.scores) for clip in clips], "clips"),
            mean_of([mean(clip.rewards) for clip in clips], "clips"),
        )
        for name, clips in kinds.items()
    ]


def comparisons(evidence: Evidence) -> dict[str, Figure]:
    """Compute the figures that compare spoilt with real clips, by name; shares refer to the gain of the same real clips."""
    real = originals(evidence)
    gained = [ends(clip.scores) for clip in real]
    wrong, still = (evidence.controls.get(name, []) for name in (WRONG_TEXT, LOITERING.name))
    misled = [ends(clip.scores) for clip in wrong]
    held = [clip.scores[held_from(len(clip.scores)) - 1 :] for clip in still]
    # without the last step, in which a potential is taken back when a task ends
    waiting, going_on = ([mean(clip.rewards[held_from(len(clip.rewards)) : -1]) for clip in clips] for clips in (still, real))
    return {
        "gain under the wrong text": ratio_of(misled, gained, "clips") if wrong else unknown("clips"),
        "gain while held still": ratio_of([ends(part) for part in held], gained, "clips") if held else unknown("clips"),
        "paid for waiting": mean_of(waiting, "clips"),
        "paid for going on": mean_of(going_on, "clips") if still else unknown("clips"),
    }


def originals(evidence: Evidence) -> list[ClipScores]:
    """Return the scores of those real episodes of which there are spoilt copies."""
    return [evidence.episodes[number].clip for number in evidence.spoilt]


def order(clip: ClipScores) -> float:
    """Return the rank correlation of a clip's scores with time (value-order correlation): 1 if they always rise."""
    return value_order_correlation(clip.scores, np.isfinite(clip.scores))


def ends(scores: Floats) -> float:
    """Return the last finite score minus the first; NaN if fewer than two are finite."""
    known = scores[np.isfinite(scores)]
    return float(known[-1] - known[0]) if len(known) > 1 else np.nan


def last(scores: Floats) -> float:
    """Return the last finite score; NaN if there is none."""
    known = scores[np.isfinite(scores)]
    return float(known[-1]) if len(known) else np.nan


def mean(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def decided_episodes(evidence: Evidence, scores: Sequence[float]) -> tuple[Array, Array]:
    """Return scores (n,) and successes (n,) of those episodes for which both are known."""
    known = [(score, each.success) for score, each in zip(scores, evidence.episodes, strict=True) if each.success is not None]
    kept = [(score, success) for score, success in known if np.isfinite(score)]
    return np.array([score for score, _ in kept], np.float64), np.array([success for _, success in kept], np.bool_)


def _separation(evidence: Evidence, scores: Sequence[float]) -> Figure:
    found, successes = decided_episodes(evidence, scores)
    if not successes.any() or successes.all():
        return unknown("episodes")
    return Figure(area_under_curve(found, successes), len(found), "episodes")


def _missing(evidence: Evidence, success: bool) -> Figure:
    shares = [
        np.isnan(each.clip.rewards).mean() for each in evidence.episodes if each.success is success and len(each.recorded)
    ]
    return mean_of(shares, "successes" if success else "failures")


def _moments(sums: Floats) -> tuple[Floats, Floats]:
    """Return means and standard deviations (R,) for sums of values, sums of squares and counts (R, 3)."""
    total, squares, count = sums.T
    known, least = count > 0, np.maximum(count, 1)
    variance = np.maximum(squares / least - (total / least) ** 2, 0)
    return np.where(known, total / least, np.nan), np.where(known, np.sqrt(variance), np.nan)


def _roughness(scores: Floats) -> float:
    """Return the root mean square change between neighbouring scores: 0 if smooth, 1 for noise; NaN if they do not vary."""
    known = scores[np.isfinite(scores)]
    deviation = float(known.std()) if len(known) > 2 else 0.0
    return float(np.sqrt(np.mean(np.diff(known) ** 2) / 2)) / deviation if deviation > 0 else np.nan


def _unlike(evidence: Evidence) -> Figure:
    """Return the difference of two labellings of the same clip, divided by the standard deviation of all labels."""
    known = np.concatenate([part for each in evidence.episodes for part in [each.clip.rewards] if len(part)] or [np.empty(0)])
    deviation = float(known[np.isfinite(known)].std()) if np.isfinite(known).any() else 0.0
    pairs = zip(originals(evidence), evidence.repeated, strict=True)
    apart = [np.sqrt(mean((first.rewards - second.rewards) ** 2)) for first, second in pairs]
    return mean_of([each / deviation if each else each for each in apart] if deviation else apart, "clips")
