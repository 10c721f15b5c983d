"""Make a recipe from Python values: a name, a path, a mapping or a Recipe, with changes of some keys."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from robo_app.recipes.recipe import EnvironmentSettings, Recipe, parse_recipe, read_recipe
from robo_rl.code_names import name_of_object
from robo_rl.environments.importing import name_of, portable_id
from robo_rl.environments.wrapping import changed
from robo_rl.errors import InvalidSetting
from robo_rl.settings import plain
from robo_rl.workbench import RecipeLike

WRAPPERS = "wrappers"
"""Key of the list of wrappers."""
CODE = ("name", "encoder", "actor", "critic", "function")
"""Keys whose values may be classes or functions."""
FIXED = ("algorithm", "summary", "needs")
"""Keys of a recipe that overrides may not change."""


def recipe_from(source: RecipeLike, overrides: Mapping[str, Any]) -> Recipe[Any]:
    """Return a recipe with some of its values replaced by those of nested mappings.

    Raises UnknownName, InvalidSetting naming the key.
    """
    if isinstance(source, str | os.PathLike):
        source = read_recipe(os.fspath(source))
    if isinstance(source, Recipe) and not overrides:
        return source
    tree, overrides = _tree(source), with_short_forms(overrides)
    if fixed := [key for key in FIXED if key in overrides]:
        raise InvalidSetting(
            f"The key {fixed[0]!r} comes with the recipe {tree['name']}.",
            got=f"{fixed[0]}={overrides[fixed[0]]!r}",
            allowed="other keys of the recipe",
            fix='pass a mapping as the recipe: {"algorithm": ..., "environment": {"name": ...}, "steps": ...}',
        )
    words = " with overrides" if overrides else ""
    return parse_recipe(merged(tree, plain_value(overrides)), source=f"the recipe {tree['name']}{words}")


def _tree(source: object) -> dict[str, Any]:
    """Return a recipe as nested mappings; without a name it gets that of its algorithm."""
    if isinstance(source, Recipe):
        return dict(plain(source))
    if isinstance(source, Mapping):
        return {"name": str(source.get("algorithm")), **plain_value(with_short_forms(source))}
    allowed = "the name of a recipe, the path of a YAML file, a mapping, or a Recipe"
    raise InvalidSetting("This is not a recipe.", got=repr(source)[:200], allowed=allowed)


def with_short_forms(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values of a recipe with short forms written out.

    An environment or a reward that is a name, a class, a function or an object becomes a mapping with its name. The key
    `network`, an encoder or settings of the group `network`, becomes a part of `learner`. Raises InvalidSetting for other
    objects.
    """
    found = dict(values)
    if "environment" in found:
        found["environment"] = _environment(found["environment"])
    if isinstance(reward := found.get("reward"), str) or callable(reward):
        found["reward"] = {"name": reward}
    learner = dict(given) if isinstance(given := found.get("learner"), Mapping) else {}
    if networks := [each for each in (learner.get("network"), found.pop("network", None)) if each is not None]:
        parts = [each if isinstance(each, Mapping) else {"encoder": each} for each in networks]
        found["learner"] = {**learner, "network": {key: value for part in parts for key, value in part.items()}}
    return found


def _environment(given: Any) -> Any:
    """Return the settings of an environment given as a name, a class, a function, an instance, or one of these in a mapping."""
    if given is None or isinstance(given, EnvironmentSettings):
        return given
    if isinstance(given, Mapping):
        if "name" not in given:
            return given
        found = _environment(given["name"])
        return {**given, **found, "arguments": {**found.get("arguments", {}), **given.get("arguments", {})}}
    name, arguments = (portable_id(given), {}) if isinstance(given, str) else name_of(given)
    return {"name": name, **({"arguments": arguments} if arguments else {})}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested mappings in which the values of `changes` replace those of `values`; wrappers are merged by name."""
    found = dict(values)
    for key, change in changes.items():
        before = found.get(key)
        if isinstance(before, Mapping) and isinstance(change, Mapping):
            found[key] = merged(before, change)
        elif key == WRAPPERS and isinstance(before, list) and isinstance(change, list):
            found[key] = changed(before, change)
        else:
            found[key] = change
    return found


def plain_value(value: Any, key: str = "overrides") -> Any:
    """Return a value as YAML can hold it; a class or function becomes its name. Raises InvalidSetting for other objects.

    key: key of the value; it decides whether classes and functions are allowed.
    """
    if value is None or isinstance(value, bool | int | str | float | np.generic):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = plain(value)
    if isinstance(value, Mapping):
        return {str(name): plain_value(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item, key) for item in value]
    if callable(value) and key in CODE:
        return name_of_object(value)
    raise InvalidSetting(
        f"The value of {key!r} cannot be written into a recipe.",
        got=repr(value)[:200],
        allowed="numbers, texts, booleans, None, and lists and mappings of them",
        fix=f"classes and functions are values of environment, reward, network, {', '.join(CODE)}; others go to callbacks",
    )
