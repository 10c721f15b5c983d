"""Mappings of a recipe on the command line, whose keys no recipe need know: `--reward.settings.folder rewards/pick`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from robo_cli.recipe import Recipe
from robo_cli.typed_settings import typed_value
from robo_rl.errors import InvalidSetting

MAPPINGS = (
    "environment.arguments",
    "evaluation.arguments",
    "reward.settings",
    "reward.arguments",
    "reward.completion.settings",
)


Additions = Sequence[tuple[str, Mapping[str, Any]]]
"""Mappings by the path of their field, and what is added to each."""


def mappings_in(recipe: Recipe[Any], words: Sequence[str]) -> tuple[Additions, list[str]]:
    """Returns what words add to the mappings of a recipe, and the words that are left.

    `--MAPPING.KEY VALUE [VALUE ...]` for a key that the recipe does not have yet; those that it has are options like others.
    `--MAPPING {KEY: VALUE, ...}` adds several. Values are as in YAML; several are a list. Raises InvalidSetting.
    """
    left: list[str] = []
    additions: list[tuple[str, Mapping[str, Any]]] = []
    for told in _options(words):
        option, is_parted, first = told[0].partition("=")
        name = option.removeprefix("--").replace("-", "_")
        path = next((each for each in MAPPINGS if option.startswith("--") and f"{name}.".startswith(f"{each}.")), None)
        key = "" if path is None else name.removeprefix(path).removeprefix(".")
        if path is None or (key and key in _at(recipe, path)):
            left += told
            continue
        values = [_value(option, value) for value in [*([first] if is_parted else []), *told[1:]]]
        if not values:
            raise InvalidSetting(f"{option} has no value.", got="nothing", allowed="a value as in YAML")
        more = {key: values if len(values) > 1 else values[0]} if key else _mapping(option, values)
        additions.append((path, more))
    return additions, left


def with_mappings(recipe: Recipe[Any], additions: Additions) -> Recipe[Any]:
    """Returns the recipe with additions to its mappings."""
    for path, more in additions:
        recipe = _added(recipe, path, more)
    return recipe


def _options(words: Sequence[str]) -> list[list[str]]:
    """Returns the words in groups that begin with an option."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _value(option: str, text: str) -> Any:
    try:
        return typed_value(text)
    except yaml.YAMLError as error:
        raise InvalidSetting(f"{option} has no readable value.", got=f"{text}: {error}", allowed="a value as in YAML") from None


def _mapping(option: str, found: Sequence[Any]) -> dict[str, Any]:
    if len(found) != 1 or not isinstance(found[0], dict):
        fix = f"{option}.NAME VALUE for one of them"
        raise InvalidSetting(f"{option} takes a mapping.", got=found, allowed="{NAME: VALUE, ...}", fix=fix)
    return {str(key): value for key, value in found[0].items()}


def _at(settings: Any, path: str) -> Mapping[str, Any]:
    for name in path.split("."):
        settings = getattr(settings, name)
    found: Mapping[str, Any] = settings
    return found


def _added(settings: Any, path: str, more: Mapping[str, Any]) -> Any:
    """Returns settings in which the mapping at a path has more keys."""
    name, _, rest = path.partition(".")
    inner = getattr(settings, name)
    return replace(settings, **{name: _added(inner, rest, more) if rest else {**inner, **more}})
