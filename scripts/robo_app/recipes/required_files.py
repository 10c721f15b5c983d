"""Files that a recipe reads and that another command makes, such as a fitted reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robo_app.recipes.recipe import Recipe
from robo_rl.errors import InvalidSetting
from robo_rl.settings import plain


def require_needs(recipe: Recipe[Any]) -> None:
    """Raise InvalidSetting, with the command that makes it, if a file or folder in the recipe's `needs` does not exist.

    Only paths that the recipe's reward settings name are checked, so another path on the command line needs nothing.
    """
    named = set(_texts(plain(recipe.reward)))
    for path, command in recipe.needs.items():
        if path in named and not Path(path).exists():
            raise InvalidSetting(
                f"The recipe {recipe.name} reads {path}, which is not there yet.",
                got=f"no such file or folder in {Path.cwd()}",
                fix=command,
            )


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
