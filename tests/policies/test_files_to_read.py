"""A method is read in few files: those of `policies/` that its learner's file leads to by imports, kernels apart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

POLICIES = Path(__file__).parents[2] / "policies"
KERNELS = "robo_policies.networks.accelerated"


def imported(path: Path) -> set[str]:
    """Returns the modules of robo_policies that a file imports, also inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("robo_policies"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("robo_policies")}
    return {name for name in found if not name.startswith(KERNELS)}


def lines_of_code(text: str) -> int:
    """Returns the lines that hold code: a longer docstring makes nothing harder to read."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and number not in said for number, line in lines)


def files_to_read(module: str) -> dict[str, int]:
    """Returns module -> lines of code of all files that it leads to, without kernels and packages that are a line of text."""
    found: dict[str, int] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = POLICIES / (name.replace(".", "/") + ".py")
        if name not in found and path.is_file():
            found[name] = lines_of_code(path.read_text())
            waiting += imported(path)
    return found


@pytest.mark.parametrize(
    ("learner", "files", "lines"), [("sac", 5, 680), ("ppo", 5, 690), ("episodic", 6, 780), ("iql", 9, 890)]
)
def test_learner_is_read_in_few_files(learner, files, lines):
    """`episodic` has the learner of group-ppo, gtr and srpo; rules and terms that it is given are read one by one."""
    found = files_to_read(f"robo_policies.learners.{learner}")
    assert f"robo_policies.learners.{learner}" in found
    assert len(found) <= files and sum(found.values()) <= lines, found


def test_kernels_are_small():
    folder = POLICIES / KERNELS.replace(".", "/")
    assert sum(len(path.read_text().splitlines()) for path in folder.glob("*.py")) <= 800
