"""Search space of a sweep: a range or choices for each setting, checked with the recipe before any training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pydantic

from robo_app.arguments.recipe_settings import MAPPINGS
from robo_app.jobs.trainings import flat
from robo_app.recipes.recipe import Recipe, parse_recipe
from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName
from robo_rl.settings import plain
from robo_rl.system.plain_files import read_yaml

STRICT = pydantic.ConfigDict(extra="forbid")
FIXED = ("name", "algorithm", "summary", "needs", "seed", "steps", "online.steps", "environment.name", "evaluation")
"""Settings that cannot be searched: task, length of training, evaluation and name are the same in all trials."""
EXAMPLE = "learner.lr: {low: 1.0e-5, high: 1.0e-2, log: true} or learner.batch_size: {choices: [64, 256]}"
Value = Any


@dataclass(frozen=True)
class Range:
    """Numbers that a sweep tries for one setting: from `low` to `high`, both included."""

    __pydantic_config__ = STRICT
    low: int | float
    high: int | float
    log: bool = False
    """Search uniformly in the logarithm."""
    step: int | float | None = None
    """Only low, low + step, low + 2 step, ... are allowed; None for all numbers."""

    def __post_init__(self) -> None:
        wrong = None
        if not self.low < self.high:
            wrong = "low below high"
        elif self.log and (self.low <= 0 or self.step is not None):
            wrong = "log only where low is above 0, and without a step"
        elif self.step is not None and (self.step <= 0 or not _divides(self.step, self.high - self.low)):
            wrong = "a step above 0 that leads from low to high"
        if wrong:
            raise InvalidSetting("A range is none.", got=plain(self), allowed=wrong)

    @property
    def ends(self) -> Sequence[Value]:
        """Lowest and highest value, with which the recipe is tried before the sweep."""
        return (self.low, self.high)

    @property
    def is_whole(self) -> bool:
        """True if the range has whole numbers only."""
        return all(isinstance(value, int) for value in (self.low, self.high, self.step or 0))


@dataclass(frozen=True)
class Choices:
    """Allowed values of a searched setting, of any type; two or more, all different."""

    __pydantic_config__ = STRICT
    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len({*self.labels}) != len(self.choices) or len(self.choices) < 2:
            raise InvalidSetting("Choices are none.", got=list(self.choices), allowed="two or more, all different")

    @property
    def ends(self) -> Sequence[Value]:
        """Values to try out on the recipe before a sweep: all choices, since the recipe could refuse any of them."""
        return self.choices

    @property
    def labels(self) -> list[str]:
        """The choices as JSON texts, in their order: the form in which Optuna stores them."""
        return [json.dumps(choice) for choice in self.choices]


Dimension = Range | Choices


@dataclass(frozen=True)
class Space:
    """Search space: the searched settings of a recipe."""

    recipe: Recipe[Any]
    dimensions: Mapping[str, Dimension]
    """Dotted path of a setting -> its range or choices."""

    def __post_init__(self) -> None:
        for path, dimension in self.dimensions.items():
            for value in dimension.ends:
                try:
                    self.at({path: value}, self.recipe.name)
                except RoboRLError as error:
                    raise InvalidSetting(f"The recipe refuses a value of {path}: {value!r}.", got=error) from None

    def at(self, values: Mapping[str, Value], name: str) -> Recipe[Any]:
        """Return the recipe of a trial, with values of settings by path, and a name; raises InvalidSetting or UnknownName."""
        tree = plain(self.recipe) | {"name": name}
        for path, value in values.items():
            *above, last = path.split(".")
            reduce(getitem, above, tree)[last] = value
        return parse_recipe(tree, source=f"the recipe {name}")

    def to_json(self) -> dict[str, Any]:
        """Return the search space as plain values, as in its file."""
        return {path: plain(dimension) for path, dimension in self.dimensions.items()}


def read_space(file: Path, recipe: Recipe[Any]) -> Space:
    """Return the space of a YAML file; raises InvalidSetting or UnknownName with line, value and remedy."""
    found = read_yaml(file)
    if not isinstance(found, dict) or not found:
        raise InvalidSetting(f"{file} names no settings.", got=found, allowed=EXAMPLE)
    dimensions: dict[str, Dimension] = {}
    for key, entry in found.items():
        path = _path(str(key), recipe)
        if path in dimensions:
            raise InvalidSetting(f"{file} names a setting twice.", got=key)
        dimensions[path] = _dimension(path, entry, recipe, file)
    return Space(recipe, dimensions)


def _path(key: str, recipe: Recipe[Any]) -> str:
    """Return the path of a setting as the recipe spells it; raises InvalidSetting, UnknownName if it cannot be searched."""
    if mapping := next((each for each in MAPPINGS if key.startswith(f"{each}.") and not each.startswith(FIXED)), None):
        if "." in key.removeprefix(f"{mapping}."):
            raise InvalidSetting("A space names whole arguments.", got=key, allowed=f"{mapping}.NAME")
        return key
    path = key.replace("-", "_")
    if any(path == fixed or path.startswith(f"{fixed}.") for fixed in FIXED):
        raise InvalidSetting("A sweep cannot search this setting.", got=key, allowed=f"others than {', '.join(FIXED)}")
    known = [name for name in flat(plain(recipe), MAPPINGS) if not name.startswith(FIXED)]
    if path not in known:
        raise UnknownName(f"setting of the recipe {recipe.name}", key, known, fix=f"`robo-rl recipes {recipe.name}` shows them")
    return path


def _dimension(path: str, entry: Any, recipe: Recipe[Any], file: Path) -> Dimension:
    kind = Choices if isinstance(entry, dict) and "choices" in entry else Range
    try:
        found = pydantic.TypeAdapter[Dimension](kind).validate_python(entry)
    except pydantic.ValidationError as error:
        problem = f"{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
        raise InvalidSetting(f"{file}: {path} has no range and no choices.", got=problem, allowed=EXAMPLE) from None
    if isinstance(found, Range) and (allowed := _numbers(recipe, path)) is not None:
        number: Any = float if float in allowed else int
        typed = [None if value is None else number(value) for value in (found.low, found.high, found.step)]
        if not allowed or typed != [found.low, found.high, found.step]:
            words = "whole numbers" if allowed else "choices, since it is not a number"
            raise InvalidSetting(f"{file}: {path} cannot have this range.", got=entry, allowed=words)
        low, high, step = typed
        return Range(low, high, found.log, step)
    return found


def _numbers(recipe: Recipe[Any], path: str) -> set[type] | None:
    """Return which of int and float a setting may be; None for a key of a free mapping."""
    if any(path.startswith(f"{each}.") for each in MAPPINGS):
        return None
    *above, last = path.split(".")
    settings = reduce(getattr, above, recipe)
    return {*_kinds(get_type_hints(type(settings))[last])} & {int, float}


def _kinds(hint: Any) -> list[Any]:
    """Return the types that a type hint allows: the members of a union, without annotations."""
    if get_origin(hint) is Annotated:
        return _kinds(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    return [hint]


def _divides(step: float, length: float) -> bool:
    steps = length / step
    return abs(steps - round(steps)) < 1e-9 * max(1.0, steps)
