"""A race: after how many steps methods solve tasks. Methods and tasks are changes of one recipe; unknown keys are errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import yaml

from robo_app.arguments.options import Settings
from robo_app.arguments.run_selection import runs_of
from robo_app.experiments.inputs import recipe_settings
from robo_app.experiments.published_scores import Published
from robo_app.experiments.study import Cell
from robo_app.jobs.jobs import Job
from robo_app.jobs.trainings import Training, keep_settings
from robo_app.recipes.overrides import merged
from robo_app.recipes.recipe import parse_recipe
from robo_rl.errors import require_allowed

Tree = dict[str, Any]


@dataclass(frozen=True)
class Race:
    """Plan of a race: trainings of every method on every task."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    name: str
    summary: str
    recipe_of_all: Tree
    """Settings that all recipes have in common."""
    methods: dict[str, Tree]
    """Method -> changes of the recipe; its key `tasks` holds further changes for single tasks."""
    tasks: dict[str, Tree]
    """Name of a task -> changes that make the task's recipe out of the common one."""
    success: float = 0.8
    """Share of successful evaluation episodes from which a task counts as solved."""
    seeds: tuple[int, ...] = (0, 1, 2)
    published: Published | None = None
    """Scores of others that `robo-rl published` compares with."""

    def __post_init__(self) -> None:
        require_allowed(self, {"seeds": (len(set(self.seeds)) == len(self.seeds) >= 1, "one or more, all different")})
        require_allowed(self, {"success": (0.0 < self.success <= 1.0, "above 0, up to 1")})
        for method, task, _ in self.cells():
            parse_recipe(self._tree(method, task), source=f"{method} on {task} of the experiment {self.name}")

    def cells(self) -> Iterator[Cell]:
        """Yield the cells, all methods with one seed before the next seed, so that a table grows evenly."""
        for seed in self.seeds:
            for task in self.tasks:
                for method in self.methods:
                    yield method, task, seed

    def preparations(self, out: Path) -> Sequence[Sequence[Job]]:
        """Return no jobs: the trainings of a race need no inputs."""
        return ()

    def trainings(self, out: Path) -> dict[Cell, Training]:
        """Return the trainings, with their recipes in OUT/recipes; raises RunError if one was started with other settings."""
        found, runs = {}, out / "runs"
        for method, task, seed in self.cells():
            name = _name(method, task)
            file = out / "recipes" / f"{name}.yaml"
            is_used = any(next(runs_of(name, each, runs), None) for each in self.seeds)
            keep_settings(file, self.recipe(method, task), is_used=is_used)
            found[method, task, seed] = Training(name, seed, [str(file), "--seed", str(seed)], runs)
        return found

    def recipe(self, method: str, task: str) -> str:
        """Return the recipe of a method on a task as YAML, without a seed."""
        words: str = yaml.safe_dump(self._tree(method, task), sort_keys=False, width=120)
        return words

    def expected(self, method: str, task: str) -> Settings:
        """Return all settings of a training, defaults included, by dotted path; they identify the training in an archive."""
        return recipe_settings(parse_recipe(self._tree(method, task), source=self.name))

    def content(self, method: str, task: str, out: Path) -> dict[str, str]:
        """Return {}: a race learns from no data, so there are no digests of data to compare."""
        return {}

    def _tree(self, method: str, task: str) -> Tree:
        changes = dict(self.methods[method])
        on_task: Tree = changes.pop("tasks", {}).get(task, {})
        tree = merged(merged(merged(self.recipe_of_all, self.tasks[task]), changes), on_task)
        return {"name": _name(method, task), **tree}


def _name(method: str, task: str) -> str:
    return f"{method}--{task}".lower()
