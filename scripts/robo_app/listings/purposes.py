"""Purposes of components, read from their source files in milliseconds; importing them may take seconds."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

from robo_rl.entry_points import component
from robo_rl.errors import RoboRLError
from robo_rl.papers import Group


def purpose(group: Group, point: EntryPoint) -> str:
    """Return the first line of a component's docstring, or the reason why it cannot be loaded.

    For a learner it is the first line of its module, which names the paper, because the component is the class of its settings.
    The component is imported only if the docstring cannot be read from its source file.
    """
    try:
        found = documented(point.module, "" if group == "learners" else point.attr)
        text = found or inspect.getdoc(component(group, point)) or "(without a description)"
    except RoboRLError as error:
        return f"not available: {' '.join(str(error).split())}"
    return text.splitlines()[0]


def documented(module: str, name: str) -> str | None:
    """Return the docstring of a class, function or constant, read from the source file of its module.

    If the module imports the name from another one, the docstring is read from that module.

    name: name in the module; "" for the module itself. Returns None if there is none or it cannot be read.
    """
    try:
        file = _source(module)
        text = file.read_text(encoding="utf-8") if file is not None else ""
        if not name and text.startswith('"""'):
            text = text[: text.index('"""', 3) + 3]  # all that counts
        tree = ast.parse(text)
    except (ImportError, ValueError, OSError, SyntaxError):
        return None
    if not name:
        return ast.get_docstring(tree)
    for each, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name:
            return ast.get_docstring(each)
        if isinstance(each, ast.Assign) and [ast.unparse(target) for target in each.targets] == [name]:
            return _text(following)
    sources = [each.module for each in tree.body if isinstance(each, ast.ImportFrom) and name in {it.name for it in each.names}]
    return documented(sources[0], name) if sources and sources[0] else None


def _source(module: str) -> Path | None:
    """Return the source file of a module, found without importing its parent packages; None if there is none."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not rest:
        return Path(spec.origin) if spec is not None and spec.origin else None
    for folder in spec.submodule_search_locations or ():
        place = Path(folder, *rest)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def _text(statement: ast.stmt | None) -> str | None:
    """Return the text of a statement that is a docstring, such as one that follows a constant; None for others."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return str(statement.value.value) if is_text else None  # type: ignore[union-attr]
