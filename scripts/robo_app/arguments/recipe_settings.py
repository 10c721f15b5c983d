"""Mappings of a recipe with free keys on the command line, such as `--reward.settings.folder rewards/pick`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from robo_app.arguments.free_settings import Group, read_mapping, read_value, require_keys, with_key, with_wrapper
from robo_app.arguments.options import WrongUsage, refuse
from robo_app.recipes.recipe import Recipe
from robo_rl.errors import InvalidSetting
from robo_rl.settings import SYNONYMS, nested_key, place_of

WRAPPERS = ("environment.wrappers", "evaluation.wrappers")
MAPPINGS = (
    "environment.arguments",
    "evaluation.arguments",
    "reward.settings",
    "reward.arguments",
    "reward.completion.settings",
    "human.settings",
)
Additions = Sequence[tuple[str, Mapping[str, Any]]]
"""Pairs of a field's path in the recipe, such as reward.settings, and keys with values to set in its mapping."""


def mappings_in(recipe: Recipe[Any], words: Sequence[str]) -> tuple[Additions, list[str]]:
    """Split a command line into additions to the mappings of a recipe, and the remaining words.

    `--MAPPING.KEY VALUE [VALUE ...]` sets a key that the recipe does not have yet (others remain, they are ordinary options),
    `--MAPPING.KEY.INNER VALUE` a key of a mapping within it, `--MAPPING {KEY: VALUE, ...}` several keys.
    `--environment.wrappers.NAME.KEY VALUE` sets a key of a wrapper, which is added if the recipe does not have it. Values are
    YAML; several values are a list. Raises InvalidSetting.
    """
    own = [f"learner.{each.name}" for each in fields(recipe.learner) if isinstance(getattr(recipe.learner, each.name), Mapping)]
    groups = [Group(path) for path in [*MAPPINGS, *WRAPPERS, *own]]
    left: list[str] = []
    additions: list[tuple[str, Mapping[str, Any]]] = []
    for first, *following in _options(words):
        option, is_parted, value = first.partition("=")
        _require_group(recipe, option)
        _require_here(recipe, option)
        values = [value, *following] if is_parted else following
        group = next((each for each in groups if each.key(option) is not None), None)
        key = "" if group is None else str(group.key(option))
        if group is None or (key and _has(_at(recipe, group.name), key)):
            left += [first, *following]
            continue
        require_keys(option, group, values)
        typed = [read_value(option, [value]) for value in values] if len(values) > 1 else read_value(option, values)
        is_whole = key or group.name in WRAPPERS
        additions.append((group.name, {key: typed} if is_whole else read_mapping(option, typed)))
    return additions, left


def with_mappings(recipe: Recipe[Any], additions: Additions) -> Recipe[Any]:
    """Return a recipe with additions to its mappings, as `mappings_in` returns them."""
    for path, more in additions:
        for key, value in more.items():
            recipe = _added(recipe, path, key, value, f"--{path}.{key}")
    return recipe


def _require_group(recipe: Recipe[Any], option: str) -> None:
    """Raise InvalidSetting for `--learner.KEY` if KEY is a group of settings, or a setting within a group."""
    start, _, key = option.partition("--learner.")
    name = key.replace("-", "_").removeprefix("no_")
    group = None if start else getattr(recipe.learner, name, None)
    if is_dataclass(group):
        allowed = ", ".join(f"{option}.{each.name.replace('_', '-')}" for each in fields(group))
        raise InvalidSetting(f"{option} is a group of settings.", got=option, allowed=allowed, fix="name one of them")
    is_here = bool(start) or hasattr(recipe.learner, name)
    if not is_here and (found := nested_key(type(recipe.learner), name)):
        spelled = f"--learner.{found.replace('_', '-')}"
        raise InvalidSetting(f"{option} is a setting of a group.", got=option, allowed=spelled, fix=f"write {spelled}")


def _require_here(recipe: Recipe[Any], option: str) -> None:
    """Exit with an error for a setting that is spelled otherwise here: in another group, or as in Stable-Baselines3."""
    key = option.removeprefix("--").replace("-", "_")
    group, _, name = key.rpartition(".")
    if not option.startswith("--") or group not in ("", "learner") or name.removeprefix("no_") in _names(recipe, group):
        return
    if not group and name not in SYNONYMS:
        return  # an option of the command, or an error that lists those that are like it
    found = place_of(type(recipe), name, {"learner": type(recipe.learner)})
    if found and found != key:
        spelled = f"--{found.replace('_', '-')}"
        refuse(WrongUsage(f"Unknown option {option!r}.", got=option, allowed=spelled, fix=f"write {spelled}"))


def _names(recipe: Recipe[Any], group: str) -> set[str]:
    return {each.name for each in fields(recipe.learner if group else recipe)}


def _options(words: Sequence[str]) -> list[list[str]]:
    """Return words as lists, each of which begins with an option."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _has(settings: Any, key: str) -> bool:
    """Return True if a mapping has a key, or KEY.INNER in a mapping within it."""
    name, _, inner = key.partition(".")
    return isinstance(settings, Mapping) and name in settings and (not inner or _has(settings[name], inner))


def _at(settings: Any, path: str) -> Mapping[str, Any]:
    for name in path.split("."):
        settings = getattr(settings, name)
    found: Mapping[str, Any] = settings
    return found


def _added(settings: Any, path: str, key: str, value: Any, option: str) -> Any:
    """Return nested settings in which the mapping at a path has a further key."""
    name, _, rest = path.partition(".")
    inner = getattr(settings, name)
    if isinstance(inner, tuple):
        return replace(settings, **{name: tuple(with_wrapper(option.removesuffix("."), inner, key, value))})
    return replace(settings, **{name: _added(inner, rest, key, value, option) if rest else with_key(option, inner, key, value)})
