"""Error messages on reward programs, for people and for the language model that wrote the program."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection
from typing import NoReturn

from robo_rl.errors import InvalidProgram, ProgramStatus
from robo_rl.rewards.programs.vocabulary import FUNCTIONS

MOST_SHOWN = 80
"""Largest number of characters of code in a message."""
MOST_GOT = 200
"""Largest number of characters of a program's text in a message."""
INSTEAD = {
    ast.If: "np.where(condition, a, b), for each row its own: `if` cannot look at N rows at once",
    ast.IfExp: "np.where(condition, a, b), for each row its own: `a if condition else b` cannot look at N rows at once",
    ast.BoolOp: "np.logical_and(a, b) or np.logical_or(a, b): `and` and `or` cannot look at N rows at once",
    ast.Not: "np.logical_not(a): `not` cannot look at N rows at once",
    ast.While: "`for i in range(10)` over a few constants; rows need no loop, arrays hold all N at once",
    ast.ListComp: "arrays: they hold all N rows at once, and np.stack puts columns together",
    ast.GeneratorExp: "arrays: they hold all N rows at once, and np.stack puts columns together",
    ast.DictComp: 'a dictionary written out: {"distance": distance, "effort": effort}',
    ast.Lambda: "an assignment to a name",
    ast.FunctionDef: "one function `reward(batch)` and no others",
    ast.JoinedStr: "nothing: a program has no use for text",
    ast.Import: "what is there already: np, math and the functions for quaternions and point clouds",
    ast.ImportFrom: "what is there already: np, math and the functions for quaternions and point clouds",
    ast.Try: "np.where, and a small number below a fraction so that nothing divides by 0",
    ast.NamedExpr: "an assignment on a line of its own",
    ast.Assert: "nothing: outputs are checked anyway",
    ast.Raise: "nothing: a row without a finite reward counts as missing anyway",
}
"""Kind of forbidden syntax -> what to write instead, in words."""


def refuse(
    node: ast.AST, status: ProgramStatus, problem: str, *, got: object = None, allowed: object = None, fix: str | None = None
) -> NoReturn:
    """Raise InvalidProgram about a part of a program, with its line number and a message of four parts."""
    line, got = getattr(node, "lineno", None), None if got is None else printable(str(got))
    raise InvalidProgram(status, problem if line is None else f"Line {line}: {problem}", got=got, allowed=allowed, fix=fix)


def refuse_node(node: ast.AST, inside: ast.AST | None = None, where: str = "in a reward program") -> NoReturn:
    """Raise InvalidProgram about a kind of syntax that is not allowed, with its replacement if one is known."""
    shown, instead = inside or node, INSTEAD.get(type(node))
    fix = f"use {instead}" if instead else None
    refuse(shown, "forbidden", f"`{type(node).__name__}` has no place {where}.", got=code(shown), fix=fix)


def printable(text: str) -> str:
    """Return a text that can be shown anywhere: shortened, on one line, with control characters escaped."""
    shown = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[:MOST_GOT])
    return "".join(shown)


def large(got: str, allowed: str) -> NoReturn:
    """Raise InvalidProgram about a program that is too large."""
    raise InvalidProgram("too large", "The program is too large.", got=got, allowed=allowed, fix="write a shorter one")


def code(node: ast.AST) -> str:
    """Return a part of a program as text on one line, cut to MOST_SHOWN characters."""
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError):  # an integer of thousands of digits has no text
        text = type(node).__name__
    text = " ".join(text.split())
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def close(name: str, known: Collection[str]) -> str:
    """Return the question whether a similar name was meant, with the most similar known names; "" if none is similar."""
    near = difflib.get_close_matches(name[:MOST_SHOWN], list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def listed(names: Collection[str]) -> str:
    """Return up to forty names, separated by commas."""
    return ", ".join(list(names)[:40]) + (f", ... ({len(names)} in all)" if len(names) > 40 else "")


def functions(got: str) -> str:
    """Return a text with the allowed functions of the module that a wrong name belongs to, and the most similar ones."""
    origin = got.partition(".")[0]
    names = [name for name in FUNCTIONS if name.startswith(f"{origin}.")] or list(FUNCTIONS)
    return ", ".join(names) + close(got, FUNCTIONS)
