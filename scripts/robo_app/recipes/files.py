"""Files of the recipes that have names, and their summaries, read without parsing whole files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from robo_rl.papers import papers
from robo_rl.system.plain_files import parse_yaml, text_of

_ALGORITHM = re.compile(r"^algorithm: *(\S+)", re.MULTILINE)
_REWARD = re.compile(r"^reward: *(?:\{ *|(?:#.*)?\n +)name: *([\w./-]+)", re.MULTILINE)
_HEADING = re.compile(r"^(?:summary|needs):.*\n(?:[ \t].*\n)*", re.MULTILINE)


@dataclass(frozen=True)
class Heading:
    """Facts about a recipe for a list of recipes."""

    summary: str
    """What the recipe is for, in one sentence."""
    needs: dict[str, str]
    """File or folder that must exist -> the command that makes it."""
    algorithm: str = ""
    """Name of the learner."""
    reward: str = ""
    """Name of the reward model, or the file of one; "" for the environment's own."""


def recipe_files() -> dict[str, Path]:
    """Return a dictionary of all named recipes, of the workbench and of the papers: name -> YAML file."""
    found = {path.stem: path for path in (Path(__file__).parent / "shipped").glob("*.yaml")}
    for paper in papers().values():
        found = {**paper.recipes, **found}
    return dict(sorted(found.items()))


def heading(file: Path) -> Heading:
    """Return the heading of a recipe file; the rest of the file is not parsed, which would take ten times as long."""
    text = text_of(file, "a recipe") + "\n"
    found = parse_yaml("".join(_HEADING.findall(text)), str(file)) or {}
    algorithm, reward = ("".join(each.findall(text)[:1]) for each in (_ALGORITHM, _REWARD))
    return Heading(str(found.get("summary", "")), {**(found.get("needs") or {})}, algorithm, reward)
