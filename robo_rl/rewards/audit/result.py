"""The result of an audit: numbers, curves and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.evaluation.figures import Figure, resampled
from robo_rl.evaluation.verdicts import Verdict
from robo_rl.rewards.audit.evidence import HIDDEN_REWARDS, ClipScores, Evidence
from robo_rl.rewards.audit.measures import (
    ControlFigures,
    agreement,
    comparisons,
    controls,
    decided_episodes,
    last,
    scale,
)
from robo_rl.rewards.audit.verdict import verdict
from robo_rl.rewards.score_statistics import Bin, by_rank, expected_calibration_error, reliability, roc_curve

SCHEMA = "robo_rl.audit/1"
POINTS = 21  # of a curve over the time of a clip
BARS = 30  # of the histogram
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Curve of the mean score over the time of clips, with the bootstrap interval over clips."""

    name: str
    n: int
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Audit:
    """Result of the audit of a reward: figures, curves and verdict, all that its page shows."""

    verdict: Verdict
    agreement: Mapping[str, Figure]
    scale: Mapping[str, Figure]
    controls: Sequence[ControlFigures]
    comparisons: Mapping[str, Figure]
    curves: Sequence[Curve]
    """Mean score over time: a curve for each outcome, and for each control"""
    roc: Sequence[tuple[float, float]]
    """(share of failures, share of successes) at or above a falling threshold of the last score; empty unless both occur"""
    calibration: Sequence[Bin]
    """Success rate of the episodes in each range (bin) of the last score."""
    calibration_error: float | None
    """expected calibration error; None if the scores are not probabilities"""
    histogram: tuple[Sequence[int], Sequence[float]]
    """Histogram of the rewards: counts and bin edges"""
    seconds_per_1000: float | None
    """[s] for 1,000 steps, without the first episode; None if the labels were read from a file"""
    tokens_per_1000: float | None
    """Tokens of questions and answers for 1,000 steps; None if the model does not count them."""

    def to_json(self) -> dict[str, Any]:
        """Return all figures as plain JSON values."""
        return {
            "schema": SCHEMA,
            "verdict": {
                "color": self.verdict.color,
                "headline": self.verdict.headline,
                "reasons": self.verdict.reasons,
                "findings": [asdict(each) for each in self.verdict.findings],
            },
            **{name: _plain(getattr(self, name)) for name in ("agreement", "scale", "comparisons")},
            "controls": {
                each.name: _plain({name: getattr(each, name) for name in ("order", "gain", "last", "paid")})
                for each in self.controls
            },
            "curves": [_finite(asdict(each)) for each in self.curves],
            "roc": [list(point) for point in self.roc],
            "calibration": [
                {"score": each.score, "n": each.n, "success": _finite(asdict(each.rate))} for each in self.calibration
            ],
            "calibration_error": self.calibration_error,
            "histogram": {"counts": list(self.histogram[0]), "edges": list(self.histogram[1])},
            "seconds_per_1000": self.seconds_per_1000,
            "tokens_per_1000": self.tokens_per_1000,
        }


def concluded(
    evidence: Evidence, *, reads_pictures: bool, reads_words: bool, was_asked: bool, tokens: int | None = None
) -> Audit:
    """Compute the figures, curves and verdict of an audit from its evidence.

    Args:
        evidence: Data of the audit.
        reads_pictures: True if the reward reads pictures.
        reads_words: True if the reward reads the instruction.
        was_asked: True if the reward was asked; False if its labels were read from a file.
        tokens: Number of tokens used in total.
    """
    agrees, numbers, clips, beside = agreement(evidence), scale(evidence), controls(evidence), comparisons(evidence)
    scores, successes = decided_episodes(evidence, [last(each.clip.scores) for each in evidence.episodes])
    is_mixed = bool(successes.any()) and not successes.all()
    are_probabilities = bool(len(scores)) and float(scores.min()) >= 0 and float(scores.max()) <= 1
    bins = [] if not len(scores) else (reliability if are_probabilities else by_rank)(scores, successes)
    asked = evidence.timed + sum(len(clip.rewards) for each in evidence.controls.values() for clip in each)
    return Audit(
        verdict(evidence, agrees, numbers, clips, beside, reads_pictures=reads_pictures, reads_words=reads_words),
        agrees,
        numbers,
        clips,
        beside,
        _curves(evidence),
        [*zip(*(side.tolist() for side in roc_curve(scores, successes)), strict=True)] if is_mixed else [],
        bins,
        expected_calibration_error(bins) if are_probabilities else None,
        _histogram(evidence),
        1000 * evidence.seconds / evidence.timed if was_asked and evidence.timed else None,
        None if tokens is None or not asked else 1000 * tokens / asked,
    )


def _curves(evidence: Evidence) -> list[Curve]:
    seen = evidence.episodes
    groups: dict[str, list[ClipScores]] = {
        "successes": [each.clip for each in seen if each.success],
        "failures": [each.clip for each in seen if each.success is False],
        "episodes": [each.clip for each in seen if each.success is None],
    }
    groups |= {name: clips for name, clips in evidence.controls.items() if name != HIDDEN_REWARDS.name}
    return [_curve(name, clips) for name, clips in groups.items() if clips]


def _curve(name: str, clips: Sequence[ClipScores]) -> Curve:
    rows = np.stack([_over_time(clip.scores) for clip in clips])
    means = _known_mean(np.ones((1, len(rows))), rows)[0]
    low, high = np.full((2, POINTS), np.nan)
    if len(rows) > 1:
        draws = _known_mean(resampled(len(rows)), rows)
        low, high = np.array([_bounds(column) for column in draws.T]).T
    return Curve(name, len(rows), means.tolist(), low.tolist(), high.tolist())


def _over_time(scores: Floats) -> Floats:
    """Return scores (T,) at POINTS moments of the clip, interpolated linearly; NaN if fewer than two are finite."""
    known = np.flatnonzero(np.isfinite(scores))
    if len(known) < 2:
        return np.full(POINTS, np.nan)
    return np.interp(np.linspace(0, len(scores) - 1, POINTS), known, scores[known])


def _known_mean(counts: Floats, rows: Floats) -> Floats:
    """Return means (R, POINTS) of the finite values of rows (E, POINTS) that occur `counts` (R, E) times."""
    known = np.isfinite(rows)
    weights = counts @ known.astype(np.float64)
    return np.where(weights > 0, counts @ np.where(known, rows, 0) / np.maximum(weights, 1), np.nan)


def _bounds(draws: Floats) -> tuple[float, float]:
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return np.nan, np.nan
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def _histogram(evidence: Evidence) -> tuple[Sequence[int], Sequence[float]]:
    known = [each.clip.rewards[np.isfinite(each.clip.rewards)] for each in evidence.episodes]
    values = np.concatenate(known or [np.empty(0)])
    if not len(values):
        return [], []
    counts, edges = np.histogram(values, bins=BARS)
    return counts.tolist(), edges.tolist()


def _plain(figures: Mapping[str, Figure]) -> dict[str, Any]:
    return {name: figure.to_json() for name, figure in figures.items()}


def _finite(node: Any) -> Any:
    """Return JSON values with None in place of non-finite numbers."""
    if isinstance(node, dict):
        return {name: _finite(value) for name, value in node.items()}
    if isinstance(node, list | tuple):
        return [_finite(value) for value in node]
    return None if isinstance(node, float) and not np.isfinite(node) else node
