"""What a reward program may call, in words for prompts: read off the very lists that the validator refuses by."""

from __future__ import annotations

import inspect

from robo_rl.rewards.programs import geometry
from robo_rl.rewards.programs.expressions import MOST_EXPONENT
from robo_rl.rewards.programs.grammar import MOST_LINES, MOST_ROUNDS, MOST_TERMS
from robo_rl.rewards.programs.vocabulary import BUILTINS, CONSTANTS, GEOMETRY, MATH, METHODS, NUMPY


def means() -> str:
    """Returns the section of a prompt on functions and syntax."""
    turns = [f"- {name}{_signature(name)}: {_sentence(name)}" for name in GEOMETRY]
    return "\n".join(
        [
            "`np` and `math` are there already; nothing can be imported. Everything that is not listed is refused.",
            f"np: {', '.join(NUMPY)}",
            f"math, for single numbers: {', '.join(MATH)}",
            f"Python's own, for single numbers: {', '.join(BUILTINS)}",
            f"constants: {', '.join(CONSTANTS)}",
            f"methods of arrays: {', '.join(METHODS)}",
            "quaternions (w, x, y, z), points and point clouds, for all rows at once:",
            *turns,
            "Syntax: assignments to plain names, arithmetic, comparisons, reading parts of arrays, `&` `|` `~` on conditions. "
            "No `if`, `while`, comprehension, class, other function or store into a part of an array. A loop is "
            f"`for i in range(n)` with n written out, at most {MOST_ROUNDS}; an exponent is a number written out, at most "
            f"{MOST_EXPONENT}. At most {MOST_LINES} lines and {MOST_TERMS} terms.",
        ]
    )


def _signature(name: str) -> str:
    return f"({', '.join(inspect.signature(getattr(geometry, name)).parameters)})"


def _sentence(name: str) -> str:
    return (inspect.getdoc(getattr(geometry, name)) or "").splitlines()[0].removeprefix("Returns ")
