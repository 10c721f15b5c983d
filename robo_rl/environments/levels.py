"""Levels: numbered reset seeds of three disjoint sets, for training, for choices (validation), for the final score (test)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import gymnasium

from robo_rl.errors import InvalidSetting, UnknownName

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
FIRST_LEVEL: dict[Split, int] = {"train": 2**29, "validation": 2**29 + 2**28, "test": 1_000_000}
"""Set of levels -> reset seed of its first level; the test levels are the seeds of every evaluation."""
MOST_LEVELS = 2**20
KEPT_APART = 200
"""Number of test levels whose layouts must not occur among the training levels."""


def level_seed(split: Split, level: int) -> int:
    """Return the reset seed of level number `level` of a set, counted from 0.

    Raises InvalidSetting if there is no such level.
    """
    if split not in FIRST_LEVEL or not 0 <= level < MOST_LEVELS:
        got = f"level {level} of {split!r}"
        raise InvalidSetting("There is no such level.", got=got, allowed=f"0 to {MOST_LEVELS - 1} of {', '.join(SPLITS)}")
    return FIRST_LEVEL[split] + level


def training_levels(environment: gymnasium.Env[Any, Any], count: int) -> list[int]:
    """Return the numbers of the first `count` training levels whose layouts differ from each other and from the test's.

    Two seeds of a small grid may draw the same layout. A simulation with an attribute `layout` is reset to compare layouts;
    levels of other environments count as different. Raises InvalidSetting if there are not enough levels.
    """
    if not count or not environment.has_wrapper_attr("layout") or environment.get_wrapper_attr("layout") is None:
        return [*range(count)]
    seen = {_layout(environment, level_seed("test", level)) for level in range(KEPT_APART)}
    found = list[int]()
    for level in range(20 * count + KEPT_APART):
        if len(found) == count:
            break
        layout = _layout(environment, level_seed("train", level))
        if layout not in seen:
            seen.add(layout)
            found.append(level)
    if len(found) < count:
        raise InvalidSetting(
            "There are not as many levels with layouts of their own, which the test's do not have.",
            got=f"{count} levels",
            allowed=f"{len(found)} or fewer",
            fix="lower the number of levels, or train without levels",
        )
    return found


def _layout(environment: gymnasium.Env[Any, Any], seed: int) -> Any:
    environment.reset(seed=seed)
    return environment.get_wrapper_attr("layout")


def as_split(name: str) -> Split:
    """Return a text as a name of a split, such as "train" or "test"; raises UnknownName for another text."""
    for split in SPLITS:
        if split == name:
            return split
    raise UnknownName("split of levels", name, SPLITS)


def split_of(seed: int) -> Split | None:
    """Return the set of levels (train, validation, test) to which a reset seed belongs, or None."""
    return next((split for split, first in FIRST_LEVEL.items() if first <= seed < first + MOST_LEVELS), None)


def require_training_seeds(seeds: Iterable[int | None], source: str) -> None:
    """Raise InvalidSetting if a seed is a level of validation or test.

    source: origin of the seeds for the message, such as "Hints".
    """
    if kept := [seed for seed in seeds if seed is not None and split_of(seed) in ("validation", "test")]:
        raise InvalidSetting(
            f"{source} would show levels that are kept apart.",
            got=f"seed {kept[0]}",
            allowed="seeds of neither validation nor test",
            fix="record on other seeds, such as robo-rl record --seed 0",
        )
