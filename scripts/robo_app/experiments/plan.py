"""Find and read plans (YAML files that describe an experiment): of the workbench, of its papers, or a file of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic

from robo_app.experiments.race import Race
from robo_app.experiments.study import Study
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.papers import papers
from robo_rl.system.plain_files import read_yaml


def plan_files() -> dict[str, Path]:
    """Return name -> file of the plans of the workbench and of the papers."""
    found = {path.stem: path for path in (Path(__file__).parent / "plans").glob("*.yaml")}
    for paper in papers().values():
        found = {**paper.plans, **found}
    return dict(sorted(found.items()))


def read_plan(name: str) -> Study | Race:
    """Return the plan of an experiment of the workbench or a paper, or in a YAML file: a race if it has tasks, else a study.

    Raises UnknownName or InvalidSetting.
    """
    known = plan_files()
    path = Path(name) if name.endswith((".yaml", ".yml")) else known.get(name)
    if path is None or not path.exists():
        raise UnknownName("experiment", name, known, fix="a path to a .yaml file works too")
    found = read_yaml(path)
    kind: type[Study | Race] = Race if isinstance(found, dict) and "tasks" in found else Study
    try:
        plan: Study | Race = pydantic.TypeAdapter(kind).validate_python({"name": path.stem, **found})
    except (pydantic.ValidationError, TypeError) as error:
        raise InvalidSetting(
            f"{path} is not an experiment.", got=_reasons(error), fix="docs/training/experiments.md shows some"
        ) from None
    return plan


def _reasons(error: Exception) -> Any:
    if not isinstance(error, pydantic.ValidationError):
        return error
    return "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
