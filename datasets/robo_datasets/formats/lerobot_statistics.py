"""Statistics of the features of a LeRobotDataset, with which LeRobot's policies normalise their inputs."""

from __future__ import annotations

import numpy as np

from robo_datasets.formats.recording import Array

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


class ColumnStatistics:
    """Statistics of a column of numbers, element by element."""

    def __init__(self) -> None:
        self._parts: list[Array] = []

    def add(self, values: Array) -> dict[str, Array]:
        """Add an episode (T, ...), and return the statistics of this episode: name -> (elements,)."""
        self._parts.append(values.reshape(len(values), -1))
        return _of_columns(self._parts[-1])

    def total(self) -> dict[str, Array]:
        """Return the statistics over all episodes that were added: name -> (elements,)."""
        return _of_columns(np.concatenate(self._parts))


class PictureStatistics:
    """Statistics of the pictures of a camera, scaled to [0, 1], channel by channel, from histograms of 256 values."""

    def __init__(self) -> None:
        self._counts, self._pictures = np.zeros((3, 256), np.int64), 0

    def add(self, pictures: Array) -> dict[str, Array]:
        """Add an episode (T, H, W, 3) uint8, and return the statistics of this episode: name -> (3, 1, 1)."""
        counts = np.stack([np.bincount(pictures[..., channel].reshape(-1), minlength=256) for channel in range(3)])
        self._counts += counts
        self._pictures += len(pictures)
        return _of_counts(counts, len(pictures))

    def total(self) -> dict[str, Array]:
        """Return the statistics over all episodes that were added: name -> (3, 1, 1)."""
        return _of_counts(self._counts, self._pictures)


def _of_columns(values: Array) -> dict[str, Array]:
    numbers = values.astype(np.float64)
    found = {"min": numbers.min(0), "max": numbers.max(0), "mean": numbers.mean(0), "std": numbers.std(0)}
    found |= dict(zip(QUANTILES, np.quantile(numbers, list(QUANTILES.values()), axis=0), strict=True))
    return found | {"count": np.array([len(values)])}


def _of_counts(counts: Array, pictures: int) -> dict[str, Array]:
    levels = np.arange(256) / 255.0
    shares = counts / counts.sum(1, keepdims=True)
    mean = shares @ levels
    std = np.sqrt(np.maximum(shares @ levels**2 - mean**2, 0.0))
    lowest, highest = (counts > 0).argmax(1), 255 - (counts[:, ::-1] > 0).argmax(1)
    found = {"min": levels[lowest], "max": levels[highest], "mean": mean, "std": std}
    found |= {name: levels[(shares.cumsum(1) >= share - 1e-12).argmax(1)] for name, share in QUANTILES.items()}
    return {name: value.reshape(3, 1, 1) for name, value in found.items()} | {"count": np.array([pictures])}
