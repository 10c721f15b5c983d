"""Environments with pictures for people."""

from __future__ import annotations

from typing import Any

import gymnasium

from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import judged_environment_of
from robo_rl.errors import InvalidSetting, RenderingUnavailable, UnknownName


def drawing_environment(recipe: Recipe[Any], mode: str) -> gymnasium.Env[Any, Any]:
    """Return the evaluation environment of a recipe with a render mode; raises RenderingUnavailable if it has no pictures.

    mode: render mode, such as "rgb_array".
    """
    name = recipe.environment.name
    try:
        found = judged_environment_of(recipe, render_mode=mode)
    except (TypeError, UnknownName, InvalidSetting) as error:
        raise _no_pictures(name, error) from error
    if type(found.unwrapped).render is gymnasium.Env.render:
        raise _no_pictures(name, "no render()")
    return found


def _no_pictures(name: str, why: object) -> RenderingUnavailable:
    return RenderingUnavailable(
        f"{name} draws no pictures.",
        got=why,
        allowed='an environment that takes render_mode="rgb_array" and returns pictures from render()',
        fix="robo-rl evaluate shows its numbers",
    )
