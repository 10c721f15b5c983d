"""What a race consists of: methods and tasks, each some settings over one recipe; strict as a recipe is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pydantic
import yaml

from robo_cli.recipe import parse_recipe
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.plain_files import read_yaml

Tree = dict[str, Any]


@dataclass(frozen=True)
class Race:
    """Trainings of every method on every task."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    name: str
    summary: str
    recipe_of_all: Tree
    """What all recipes have in common."""
    methods: dict[str, Tree]
    """What each method changes, and under `tasks` what it changes on one of them alone."""
    tasks: dict[str, Tree]
    """What each task changes."""
    success: float = 0.8
    """Share of successful evaluation episodes from which a task counts as solved."""
    seeds: tuple[int, ...] = field(default=(0, 1, 2))

    def __post_init__(self) -> None:
        require_allowed(self, {"seeds": (len(set(self.seeds)) == len(self.seeds) >= 1, "one or more, all different")})
        require_allowed(self, {"success": (0.0 < self.success <= 1.0, "above 0, up to 1")})
        for method, task, _ in self.trainings():
            parse_recipe(self._tree(method, task), source=f"{method} on {task} of the race {self.name}")

    def trainings(self) -> Iterator[tuple[str, str, int]]:
        """Yields (method, task, seed), one seed of everything before the next, so that a table grows evenly."""
        for seed in self.seeds:
            for task in self.tasks:
                for method in self.methods:
                    yield method, task, seed

    def recipe(self, method: str, task: str) -> str:
        """Returns the recipe of a method on a task, as YAML without name and seed."""
        words: str = yaml.safe_dump(self._tree(method, task), sort_keys=False, width=120)
        return words

    def _tree(self, method: str, task: str) -> Tree:
        changes = dict(self.methods[method])
        on_task: Tree = changes.pop("tasks", {}).get(task, {})
        tree = _merged(_merged(_merged(self.recipe_of_all, self.tasks[task]), changes), on_task)
        return {"name": f"{method}--{task}".lower(), **tree}


def read_race(name: str) -> Race:
    """Returns a race that comes with the package, or that of a YAML file; raises UnknownName or InvalidSetting."""
    folder = Path(str(files("robo_cli") / "races"))
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    path = Path(name) if name.endswith((".yaml", ".yml")) else known.get(name)
    if path is None or not path.exists():
        raise UnknownName("race", name, known, fix="a path to a .yaml file works too")
    try:
        return pydantic.TypeAdapter(Race).validate_python({"name": path.stem, **read_yaml(path)})
    except (pydantic.ValidationError, TypeError) as error:
        raise InvalidSetting(
            f"{path} is not a race.", got=str(error).splitlines()[0], fix="docs/words-as-beacons.md shows one"
        ) from None


def _merged(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> Tree:
    """Returns a tree in which the leaves of another replace its own."""
    both = {key: _merged(tree[key], value) for key, value in changes.items() if _are_trees(tree.get(key), value)}
    return {**tree, **changes, **both}


def _are_trees(*values: object) -> bool:
    return all(isinstance(value, Mapping) for value in values)
