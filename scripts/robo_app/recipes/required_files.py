"""Files that a recipe reads and that a command has to make first, such as a fitted reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robo_app.recipes.recipe import Recipe
from robo_rl.errors import InvalidSetting
from robo_rl.settings import plain


def require_needs(recipe: Recipe[Any]) -> None:
    """Raise InvalidSetting, naming the command, if a file or folder that the recipe reads is not there.

    A path counts as long as the recipe's reward names it: with another one on the command line nothing is needed.
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
