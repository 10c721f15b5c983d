"""Statistics of a dataset: ranges, faults, saturation, returns, coverage of states and actions.

Episodes are read one at a time. The profile follows that of OG-MARL (https://github.com/instadeepai/og-marl). OG-MARL measures
coverage by the share of unique pairs of state and action, which is 1 for any continuous data; so pairs are binned here, and
their distances are measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_datasets.cache import Watch, read_listed
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.figures import actor_name
from robo_datasets.remarks import remarks_for
from robo_rl.replay.rows import columns_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode

DRAWN = 5_000
"""number of steps on which the coverage of an actor is measured; it is the same for all, since coverage falls as data grow"""
BINS = 5
"""number of bins of each dimension, between its least and its greatest value"""
SATURATED = 1 - 1e-6
BLOCK = 256  # rows
HISTOGRAM = 10
"""number of bins of the histograms of returns and lengths"""


def profile(dataset: Dataset, watch: Watch = iter) -> dict[str, Any]:
    """Return the statistics of a dataset as JSON values; raises EpisodeCorrupt if an episode is damaged.

    watch: passes the entries on one by one; may show progress.
    """
    entries = dataset.entries()
    arrays: dict[str, _Moments] = {}
    pairs: dict[str, list[Array]] = {}
    sources: Counter[str] = Counter()
    drawn = _drawn(entries)
    remarks = remarks_for(dataset)
    bounded = () if dataset.spec.action.is_discrete else ("actions", "policy_actions")
    for number, entry in enumerate(watch(entries)):
        episode = read_listed(dataset, entry)
        remarks.add(episode)
        for name, values in _arrays(episode).items():
            arrays.setdefault(name, _Moments()).add(values)
        sources.update(map(actor_name, episode.sources.tolist()))
        pairs.setdefault(entry.source, []).append(_pairs(dataset.spec, episode)[drawn[number]])
    return {
        "episodes": len(entries),
        "steps": sum(entry.steps for entry in entries),
        "arrays": {name: moments.to_json(is_bounded=name in bounded) for name, moments in arrays.items()},
        "returns": _spread([entry.episode_return for entry in entries]),
        "lengths": _spread([entry.steps for entry in entries]),
        "ends": dict(Counter(entry.stop_reason for entry in entries).most_common()),
        "terminated": sum(entry.terminated for entry in entries),
        "truncated": sum(entry.truncated for entry in entries),
        "acted": dict(sources.most_common()),
        "remarks": remarks.lines(),
        "coverage": {actor: coverage(np.concatenate(parts)) for actor, parts in pairs.items()},
    }


def coverage(pairs: npt.NDArray[np.float64]) -> dict[str, Any] | None:
    """Return measures of how much of the space of states and actions the data cover.

    Args:
        pairs: (N, D) States with their actions.

    Returns:
        `pairs`: number of pairs. `unique_bins`: number of occupied bins, of BINS ** D in all, divided by the number of pairs.
        `nearest`: median distance to the nearest other pair, divided by the same after each dimension was shuffled on its own;
        it is 1 if the dimensions are independent. None for fewer than two pairs, or if nothing varies.
    """
    pairs = pairs[np.isfinite(pairs).all(1)]
    varied = pairs[:, np.ptp(pairs, axis=0) > 0] if len(pairs) else pairs
    if len(varied) < 2 or not varied.shape[1]:
        return None
    low, span = varied.min(0), np.ptp(varied, axis=0)
    bins = np.minimum((varied - low) / span * BINS, BINS - 1).astype(np.int8)
    scaled = (varied - varied.mean(0)) / varied.std(0)
    shuffled = np.random.default_rng(0).permuted(scaled, axis=0)
    unrelated = _nearest(shuffled)
    return {
        "pairs": len(varied),
        "unique_bins": len(np.unique(bins, axis=0)) / len(varied),
        "nearest": _nearest(scaled) / unrelated if unrelated else None,
    }


class _Moments:
    """Range, mean and standard deviation of the finite values of an array over all episodes.

    A vector has them for each of its elements, a picture one of each.
    """

    def __init__(self) -> None:
        self._count: Any = 0
        self._sums: Any = 0.0
        self._squares: Any = 0.0
        self._least: Any = np.inf
        self._most: Any = -np.inf
        self._shift: Any = None
        self._nan = self._infinite = self._saturated = 0

    def add(self, values: Array) -> None:
        """Add the values (T, ...) of an episode, in blocks of rows, since each pixel of a picture becomes a float."""
        for start in range(0, len(values), BLOCK):
            part = values[start : start + BLOCK]
            self._add(part.reshape(len(part), -1) if part.ndim < 3 else part.reshape(-1, 1))

    def _add(self, values: Array) -> None:
        is_finite = np.isfinite(values)
        self._nan += int(np.isnan(values).sum())
        self._infinite += int((~is_finite).sum() - np.isnan(values).sum())
        self._saturated += int((np.abs(np.where(is_finite, values, 0)) >= SATURATED).sum())
        if self._shift is None:  # sums of differences lose no digits if the values are far from 0
            self._shift = np.where(is_finite, values, 0)[0].astype(np.float64)
        moved = np.where(is_finite, values - self._shift, 0.0)
        self._count = self._count + is_finite.sum(0)
        self._sums, self._squares = self._sums + moved.sum(0), self._squares + (moved**2).sum(0)
        self._least = np.minimum(self._least, np.where(is_finite, values, np.inf).min(0))
        self._most = np.maximum(self._most, np.where(is_finite, values, -np.inf).max(0))

    def to_json(self, *, is_bounded: bool) -> dict[str, Any]:
        """Return range, mean and standard deviation of all values and of each dimension, and the number of faults.

        is_bounded: True for values in [-1, 1], whose share at the limits is then given, too.
        """
        if self._shift is None or not np.all(self._count):
            return {"values": int(np.sum(self._count)), "nan": self._nan, "infinite": self._infinite}
        count, total = self._count, int(np.sum(self._count))
        means = self._shift + self._sums / count
        variances = np.maximum(self._squares / count - (self._sums / count) ** 2, 0)
        mean = float(np.sum(means * count) / total)
        variance = float(np.sum((variances + (means - mean) ** 2) * count) / total)
        facts = {
            "values": total,
            "min": float(np.min(self._least)),
            "max": float(np.max(self._most)),
            "mean": mean,
            "std": variance**0.5,
            "nan": self._nan,
            "infinite": self._infinite,
            "constant": np.flatnonzero(self._least == self._most).tolist(),
            "dimensions": {
                "min": self._least.tolist(),
                "max": self._most.tolist(),
                "mean": means.tolist(),
                "std": np.sqrt(variances).tolist(),
            },
        }
        return facts | ({"saturated": self._saturated / total} if is_bounded else {})


def _arrays(episode: Episode) -> dict[str, Array]:
    return {
        **{f"observations/{name}": values for name, values in episode.observations.items()},
        "actions": episode.actions,
        "policy_actions": episode.policy_actions,
        "rewards": episode.rewards,
    }


def _pairs(spec: EnvironmentSpec, episode: Episode) -> npt.NDArray[np.float64]:
    """Return the states with their actions (T, D): observations without pictures, joined with the actions."""
    steps = len(episode)
    seen = [episode.observations[name][:steps].reshape(steps, spec.observation[name].size) for name in columns_of(spec)]
    return np.concatenate([*seen, episode.actions.reshape(steps, spec.action.size if not spec.action.is_discrete else 1)], 1)


def _drawn(entries: Sequence[Entry]) -> list[npt.NDArray[np.int64]]:
    """Return the steps of each episode on which coverage is measured: DRAWN steps per actor, at random with a fixed seed."""
    drawn: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64) for _ in entries]
    for actor in {entry.source for entry in entries}:
        numbers = [number for number, entry in enumerate(entries) if entry.source == actor]
        ends = np.cumsum([entries[number].steps for number in numbers])
        steps = int(ends[-1])
        chosen = np.sort(np.random.default_rng(0).choice(steps, min(DRAWN, steps), replace=False))
        for number, part, end in zip(numbers, np.split(chosen, np.searchsorted(chosen, ends[:-1])), ends, strict=True):
            drawn[number] = part - (int(end) - entries[number].steps)
    return drawn


def _nearest(points: npt.NDArray[np.float64]) -> float:
    from scipy.spatial import cKDTree  # takes longer to import than `robo-rl data --help` in all

    distances, _ = cKDTree(points).query(points, k=2)
    return float(np.median(distances[:, 1]))


def _spread(values: Iterable[float]) -> dict[str, Any] | None:
    numbers = np.array(list(values), np.float64)
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    counts, edges = np.histogram(numbers, HISTOGRAM)
    return {
        "min": float(numbers.min()),
        "mean": float(numbers.mean()),
        "max": float(numbers.max()),
        "std": float(numbers.std()),
        "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
    }
