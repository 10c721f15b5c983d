"""Purposes of components, read from their source in milliseconds; importing them may take seconds."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

from robo_rl.entry_points import Group, component
from robo_rl.errors import RoboRLError


def purpose(group: Group, point: EntryPoint) -> str:
    """Return the first line of a component's docstring, or the reason why it cannot be loaded.

    It is loaded only if its source does not show the docstring.
    """
    try:
        text = documented(point.module, point.attr) or inspect.getdoc(component(group, point)) or "(without a description)"
    except RoboRLError as error:
        return f"not available: {' '.join(str(error).split())}"
    return text.splitlines()[0]


def documented(module: str, name: str) -> str | None:
    """Return the docstring of a class or function from the file of its module, or of the module that this imports it from.

    None if it cannot be read there.
    """
    try:
        found = find_spec(module)
        source = Path(found.origin).read_text(encoding="utf-8") if found is not None and found.origin else ""
        statements = ast.parse(source).body
    except (ImportError, ValueError, OSError, SyntaxError):
        return None
    named = [each for each in statements if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name]
    if named:
        return ast.get_docstring(named[0])
    sources = [
        each.module for each in statements if isinstance(each, ast.ImportFrom) and name in {it.name for it in each.names}
    ]
    return documented(sources[0], name) if sources and sources[0] else None
