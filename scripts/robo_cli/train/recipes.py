"""robo-rl recipes: list the recipes that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_app.recipes.recipe import read_recipe, recipe_files, to_yaml
from robo_rl.system.plain_files import read_yaml

EXAMPLES = "robo-rl recipes\nrobo-rl recipes arm-pick-rlpd > mine.yaml"


@dataclass(frozen=True)
class Recipes:
    """List recipes, or print one as YAML to start your own from."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")] = ""
    """A recipe to print."""


def run(arguments: Recipes) -> int:
    """Prints names with their summaries, or one recipe with every default written out."""
    if arguments.name:
        print(to_yaml(read_recipe(arguments.name)), end="")
        return 0
    for name, file in recipe_files().items():
        recipe = read_yaml(file)  # to read the settings of all learners takes seconds
        print(f"{name:24} {recipe['summary']}")
        for command in recipe.get("needs", {}).values():
            print(f"{'':24} first: {command}")
    return 0
