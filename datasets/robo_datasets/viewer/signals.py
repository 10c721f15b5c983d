"""Signals of an episode for the page: one for each array of numbers, and the pictures of its cameras."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import cv2
import numpy as np

from robo_datasets.hdf5_arrays import Array
from robo_rl.errors import UnknownName
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec
from robo_rl.types import Episode, RewardLabels

MOST_COLUMNS = 512
"""largest number of values per row that the page draws; a wider signal, such as a depth picture, is only named"""
FASTEST_PNG = [cv2.IMWRITE_PNG_COMPRESSION, 1]


@dataclass(frozen=True)
class Signal:
    """Array over the steps of an episode, which the page draws as curves."""

    group: str
    """kind of data: observations, actions, rewards, reward_terms, costs, labels, confidence, sources or timestamps"""
    name: str
    values: Array
    """(rows, ...) numbers; NaN for a missing one"""
    columns: tuple[str, ...] = ()
    """names of the numbers in a row, in order; empty for their indices"""
    unit: str = ""
    detail: str = ""
    """frame and role of the observation, in words"""

    @property
    def key(self) -> str:
        """Key of the signal in the page's requests."""
        return f"{self.group}/{self.name}"

    @property
    def width(self) -> int:
        """Number of values in a row."""
        return math.prod(self.values.shape[1:])

    def describe(self) -> dict[str, Any]:
        """Return the facts about the signal that the page shows, without the numbers."""
        columns = self.columns if len(self.columns) == self.width else _indices(self.values.shape[1:])
        facts = {"key": self.key, "group": self.group, "name": self.name, "rows": len(self.values), "width": self.width}
        return facts | {"columns": columns, "unit": self.unit, "detail": self.detail, "drawn": self.width <= MOST_COLUMNS}

    def encoded(self) -> bytes:
        """Return the numbers column by column, as little-endian float32. A value beyond float32 becomes infinite."""
        with np.errstate(all="ignore"):  # beyond float32 is infinite on the page
            table = self.values.reshape(len(self.values), self.width).astype("<f4")
        return np.ascontiguousarray(table.T).tobytes()


def signals_of(episode: Episode, spec: EnvironmentSpec, *, is_simulated: bool = False) -> Iterator[Signal]:
    """Yield the signals of an episode, all but its pictures.

    Args:
        episode: The episode.
        spec: Spec of its environment.
        is_simulated: True to count time in control periods instead of the recorded time stamps, which for a simulation only
            show its speed.
    """
    pictures = pictures_of(episode, spec)
    for name, values in episode.observations.items():
        if name not in pictures:
            array = spec.observation[name]
            detail = ", ".join(([f"frame {array.frame}"] if array.frame else []) + [array.role])
            yield Signal("observations", name, values, unit=array.unit, detail=detail)
    names = _action_names(spec.action)
    yield Signal("actions", "executed", episode.actions, names)
    yield Signal("actions", "proposed", episode.policy_actions, names)
    yield Signal("rewards", "reward", episode.rewards)
    for name, values in episode.reward_terms.items():
        yield Signal("reward_terms", name, values)
    for name, values in episode.costs.items():
        yield Signal("costs", name, values)
    yield Signal("sources", "source", episode.sources)
    period = spec.action.control_period
    simulated = np.arange(len(episode) + 1) * period if is_simulated and period is not None else None
    elapsed = _elapsed(episode.timestamps) if simulated is None else simulated
    yield Signal("timestamps", "seconds", elapsed, unit="s")


def label_signals(name: str, labels: RewardLabels) -> Iterator[Signal]:
    """Yield the labels of an episode, with NaN for missing ones, and the model's confidence if the labels have one.

    name: name of the label set.
    """
    yield Signal("labels", name, np.where(labels.valid, labels.values, np.nan))
    if labels.confidence is not None:
        yield Signal("confidence", name, labels.confidence)


def pictures_of(episode: Episode, spec: EnvironmentSpec) -> Mapping[str, Array]:
    """Return name of a camera -> its pictures (T+1, H, W, 3) or (T+1, H, W, 1), uint8."""
    images = {name: episode.observations[name] for name in spec.observation.subset("image")}
    return {name: values for name, values in images.items() if _is_picture(values)}


def encoded_picture(pictures: Mapping[str, Array], camera: str, index: int) -> bytes:
    """Return one picture as PNG, without loss; raises UnknownName if the episode has no such camera or index."""
    if camera not in pictures:
        raise UnknownName("camera", camera, pictures)
    if not 0 <= index < len(pictures[camera]):
        raise UnknownName("picture", str(index), [f"0 to {len(pictures[camera]) - 1}"])
    frame = np.ascontiguousarray(pictures[camera][index][..., ::-1])  # OpenCV wants blue first
    return bytes(cv2.imencode(".png", frame, FASTEST_PNG)[1])


def _is_picture(values: Array) -> bool:
    return values.dtype == np.uint8 and values.ndim == 4 and values.shape[3] in (1, 3) and math.prod(values.shape[1:]) > 0


def _elapsed(timestamps: Array) -> Array:
    with np.errstate(all="ignore"):
        return timestamps - timestamps[:1]


def _action_names(action: ActionSpec) -> tuple[str, ...]:
    return ("choice",) if action.is_discrete else action.names


def _indices(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the index of each number in a row of this shape: "0", "1", ... for a vector, "0,0", "0,1", ... for a matrix."""
    if not shape or math.prod(shape) > MOST_COLUMNS:
        return ("",)
    return tuple(",".join(map(str, place)) for place in product(*map(range, shape)))
