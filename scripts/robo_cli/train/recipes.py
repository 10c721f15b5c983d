"""robo-rl recipes: list the recipes that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_app.listings.levels import Row, by_level, weakest_of
from robo_app.recipes.files import heading, recipe_files

EXAMPLES = "robo-rl recipes\nrobo-rl recipes arm-pick-rlpd > mine.yaml"


@dataclass(frozen=True)
class Recipes:
    """List recipes by the evidence for their methods, or print one as YAML to start your own from."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")] = ""
    """A recipe to print."""


def run(arguments: Recipes) -> int:
    """Print names with their summaries, or one recipe with every default written out."""
    if arguments.name:
        from robo_app.recipes.recipe import read_recipe, to_yaml

        print(to_yaml(read_recipe(arguments.name)), end="")
        return 0
    rows = []
    for name, file in recipe_files().items():
        found = heading(file)
        needs = tuple(f"first: {command}" for command in found.needs.values())
        rows.append(Row(name, weakest_of(found.algorithm, found.reward), found.summary, needs))
    print("\n".join(by_level(rows)))
    return 0
