"""Scores that others published, read from their files: learning curves by method, task and seed.

Two sources are known: the JSON files in `scores` of https://github.com/danijar/dreamerv3, and the CSV files in `results` of
https://github.com/nicklashansen/tdmpc2. Both count environment steps; a repeated action counts as several steps.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic

from robo_rl.errors import InvalidSetting, RunError, UnknownName, require_allowed
from robo_rl.system.plain_files import MOST_BYTES, content_of

FOLDER = "tdmpc2"
"""Folder, beside the JSON files, with a folder of CSV files for each method."""
METHODS_OF_TDMPC2: Mapping[str, tuple[str, ...]] = {
    "dmc_proprio": ("dreamerv3", "sac", "tdmpc", "tdmpc2"),
    "dmc_vision": ("tdmpc2-pixels",),
    "metaworld": ("dreamerv3", "sac", "tdmpc", "tdmpc2"),
}
"""Suite -> folders of its methods in the folder of TD-MPC2."""


@dataclass(frozen=True)
class Published:
    """Which published scores an experiment is compared with, and where on the curves."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    suite: str
    """Suite of the score files: dmc_proprio, dmc_vision or metaworld. Tasks of the experiment are named as there."""
    at: int
    """Environment steps at which methods are compared."""
    window: int = 20_000
    """Environment steps up to `at` over which scores are averaged: published scores are of training episodes, and noisy."""
    by: Literal["return", "success"] = "return"
    """What the published scores count: returns of episodes or success rates."""

    def __post_init__(self) -> None:
        if self.suite not in METHODS_OF_TDMPC2:
            raise UnknownName("suite of published scores", self.suite, METHODS_OF_TDMPC2)
        require_allowed(self, {"window": (0 < self.window <= self.at, f"1 to {self.at}")})


@dataclass(frozen=True)
class ScoreCurve:
    """Learning curve of one training."""

    method: str
    task: str
    seed: int
    points: tuple[tuple[float, float], ...]
    """Pairs of environment steps and score, in ascending order; scores that are not finite are left out."""

    def at(self, step: int, window: int) -> float | None:
        """Return the mean score over the last `window` steps up to `step`; None if there is no score in them."""
        scores = [score for at, score in self.points if step - window <= at <= step]
        return float(np.mean(scores)) if scores else None


def read_scores(folder: Path, suite: str) -> list[ScoreCurve]:
    """Return the curves of a suite; raises InvalidSetting if the folder has none, RunError if a file is damaged."""
    files = [*sorted(folder.glob(f"{suite}-*.json.gz"))]
    tables = [each for name in METHODS_OF_TDMPC2[suite] for each in sorted((folder / FOLDER / name).glob("*.csv"))]
    curves = [curve for file in files for curve in _checked(file, _of_json(file))]
    for file in tables:
        if (task := _task_of(file.stem, suite)) is not None:
            curves += _checked(file, _of_csv(file, f"{FOLDER}/{file.parent.name}", task))
    if not curves:
        raise InvalidSetting(
            f"{folder} holds no scores of {suite}.",
            got="no such folder" if not folder.is_dir() else "none of the files below",
            allowed=f"{suite}-METHOD.json.gz (danijar/dreamerv3), {FOLDER}/METHOD/TASK.csv (nicklashansen/tdmpc2)",
            fix="docs/training/foreign-measures.md says where they are",
        )
    return curves


def _checked(file: Path, curves: Iterable[ScoreCurve]) -> Iterator[ScoreCurve]:
    try:
        yield from curves
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError) as error:
        raise RunError(
            f"{file} is damaged.",
            got=f"{type(error).__name__}: {error}",
            allowed="scores by task, seed and step",
            fix="get it again",
        ) from None


def _of_json(file: Path) -> Iterator[ScoreCurve]:
    with gzip.open(io.BytesIO(content_of(file))) as packed:
        content = packed.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    for row in json.loads(content):
        points = zip(row["xs"], row["ys"], strict=True)
        yield _curve(row["method"], row["task"].removeprefix("dmc_"), row["seed"], points)


def _of_csv(file: Path, method: str, task: str) -> Iterator[ScoreCurve]:
    by_seed: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for row in csv.DictReader(content_of(file).decode().splitlines()):
        by_seed[row["seed"]].append((row["step"], row["reward"] if "reward" in row else row["success"]))
    for seed, points in by_seed.items():
        yield _curve(method, task, seed, points)


def _curve(method: str, task: str, seed: Any, points: Iterable[tuple[Any, Any]]) -> ScoreCurve:
    found = sorted((float(step), float(score)) for step, score in points)
    return ScoreCurve(method, task, int(seed), tuple(point for point in found if math.isfinite(point[1])))


def _task_of(stem: str, suite: str) -> str | None:
    """Return our name of a task from TD-MPC2's name of its file; None if the task is of another suite."""
    is_metaworld = stem.startswith("mw-")
    if (suite == "metaworld") != is_metaworld:
        return None
    name = stem.removeprefix("mw-")
    if is_metaworld:
        return name
    name = name.replace("-", "_")
    return f"ball_in_{name}" if name.startswith("cup_") else name
