"""Linear temporal logic on finite traces (De Giacomo and Vardi 2013, IJCAI), by progression.

A formula is rewritten by each set of labels that hold, until it is true, false, or the trace ends (Bacchus and Kabanza 1998).

    true, false, names, !f, f & g, f | g, f -> g, ( )
    X f   there is a next step, and f holds from it        N f   if there is a next step, f holds from it
    F f   f holds at some step                             G f   f holds at all steps
    f U g   g holds at some step, and f at all steps before

Formulas are in negation normal form, and sets of and-ed or or-ed ones, so that equal ones are found equal. X f becomes f and
"there is a step left"; without it, X G f would hold on a trace that has no next step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from robo_rl.errors import InvalidSetting

Kind = Literal["true", "false", "name", "not", "and", "or", "X", "N", "F", "G", "U", "R"]
TOKEN = re.compile(r"\s*(->|[()!&|]|[A-Za-z_][A-Za-z0-9_]*)")
UNARY = ("X", "N", "F", "G")
MOST_DEPTH = 60


@dataclass(frozen=True)
class Formula:
    """Formula of temporal logic in canonical form; R is the dual of U: f R g = !(!f U !g)."""

    kind: Kind
    name: str = ""
    parts: tuple[Formula, ...] = ()

    def __str__(self) -> str:
        if self.kind in ("true", "false"):
            return self.kind
        if self.kind == "name":
            return self.name
        if self.kind in ("and", "or"):
            sign = " & " if self.kind == "and" else " | "
            return f"({sign.join(sorted(map(str, self.parts)))})"
        if self.kind in ("U", "R"):
            return f"({self.parts[0]} {self.kind} {self.parts[1]})"
        return f"{'!' if self.kind == 'not' else self.kind + ' '}{self.parts[0]}"

    @property
    def looks_ahead(self) -> bool:
        """True if the formula depends on later steps."""
        return self.kind in ("X", "N", "F", "G", "U", "R") or any(part.looks_ahead for part in self.parts)

    @property
    def names(self) -> frozenset[str]:
        """Names of the labels on which the formula depends."""
        own = frozenset([self.name]) if self.kind == "name" else frozenset[str]()
        return own.union(*(part.names for part in self.parts))


TRUE, FALSE = Formula("true"), Formula("false")
SOME = Formula("F", parts=(TRUE,))
"""Formula that holds if there is a step left."""
NONE = Formula("G", parts=(FALSE,))
"""Formula that holds if there is no step left."""


def joined(kind: Literal["and", "or"], parts: Iterable[Formula]) -> Formula:
    """Return the conjunction or disjunction of formulas, flat and without repetition.

    True or false if that is already clear.
    """
    neutral, absorbing = (TRUE, FALSE) if kind == "and" else (FALSE, TRUE)
    found: dict[Formula, None] = {}
    for part in parts:
        for each in part.parts if part.kind == kind else (part,):
            if each == absorbing or negated(each) in found:
                return absorbing
            if each != neutral:
                found[each] = None
    if not found:
        return neutral
    if len(found) == 1:
        return next(iter(found))
    return Formula(kind, parts=tuple(sorted(found, key=str)))


DUAL: dict[Kind, Kind] = {"and": "or", "or": "and", "X": "N", "N": "X", "F": "G", "G": "F", "U": "R", "R": "U"}


def negated(formula: Formula) -> Formula:
    """Return the negation of a formula, pushed down to the names of labels."""
    if formula.kind in ("true", "false"):
        return FALSE if formula == TRUE else TRUE
    if formula.kind == "name":
        return Formula("not", parts=(formula,))
    if formula.kind == "not":
        return formula.parts[0]
    parts = tuple(negated(part) for part in formula.parts)
    if formula.kind in ("and", "or"):
        return Formula(DUAL[formula.kind], parts=tuple(sorted(parts, key=str)))
    return Formula(DUAL[formula.kind], parts=parts)


def progressed(formula: Formula, holds: frozenset[str]) -> Formula:  # noqa: PLR0911 - one for each kind
    """Return the formula that the rest of the trace must fulfil, after a step at which the labels `holds` hold."""
    kind, parts = formula.kind, formula.parts
    if kind in ("true", "false"):
        return formula
    if kind == "name":
        return TRUE if formula.name in holds else FALSE
    if kind == "not":
        return negated(progressed(parts[0], holds))
    if kind in ("and", "or"):
        return joined("and" if kind == "and" else "or", (progressed(part, holds) for part in parts))
    if kind == "X":
        return joined("and", (parts[0], SOME))
    if kind == "N":
        return joined("or", (parts[0], NONE))
    now = [progressed(part, holds) for part in parts]
    if kind == "F":
        return TRUE if parts[0] == TRUE else joined("or", (now[0], formula))
    if kind == "G":
        return FALSE if parts[0] == FALSE else joined("and", (now[0], formula))
    if kind == "U":
        return joined("or", (now[1], joined("and", (now[0], formula))))
    return joined("and", (now[1], joined("or", (now[0], formula))))


def is_fulfilled(formula: Formula) -> bool:
    """Return True if a trace that ends here fulfils the formula."""
    if formula.kind in ("and", "or"):
        found = (is_fulfilled(part) for part in formula.parts)
        return all(found) if formula.kind == "and" else any(found)
    return formula.kind in ("true", "N", "G", "R")


def parsed(text: str) -> Formula:
    """Return the formula of a text; raises InvalidSetting."""
    tokens = [*_tokens(text)]
    formula, rest = _implication(tokens, text, 0)
    if rest:
        raise _wrong(text, f"{rest[0]!r} after the end of the formula")
    return formula


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while text[place:].strip():
        found = TOKEN.match(text, place)
        if found is None:
            raise _wrong(text, f"{text[place:].strip()[:10]!r}")
        yield found[1]
        place = found.end()


Read = tuple[Formula, list[str]]


def _implication(tokens: list[str], text: str, depth: int) -> Read:
    left, rest = _chain(tokens, text, depth, "|")
    if rest[:1] == ["->"]:
        right, rest = _implication(rest[1:], text, depth + 1)
        return joined("or", (negated(left), right)), rest
    return left, rest


def _chain(tokens: list[str], text: str, depth: int, sign: str) -> Read:
    def below(left: list[str]) -> Read:
        return _until(left, text, depth) if sign == "&" else _chain(left, text, depth, "&")

    found, rest = below(tokens)
    parts = [found]
    while rest[:1] == [sign]:
        found, rest = below(rest[1:])
        parts.append(found)
    return (joined("and" if sign == "&" else "or", parts) if len(parts) > 1 else parts[0]), rest


def _until(tokens: list[str], text: str, depth: int) -> Read:
    left, rest = _one(tokens, text, depth)
    if rest[:1] == ["U"]:
        right, rest = _until(rest[1:], text, depth + 1)
        return Formula("U", parts=(left, right)), rest
    return left, rest


def _one(tokens: list[str], text: str, depth: int) -> Read:
    if depth > MOST_DEPTH:
        raise _wrong(text, f"more than {MOST_DEPTH} levels")
    if not tokens:
        raise _wrong(text, "its end, too early")
    token, rest = tokens[0], tokens[1:]
    if token == "(":
        inner, rest = _implication(rest, text, depth + 1)
        if rest[:1] != [")"]:
            raise _wrong(text, "a bracket that is not closed")
        return inner, rest[1:]
    if token == "!":
        inner, rest = _one(rest, text, depth + 1)
        return negated(inner), rest
    if token in UNARY:
        inner, rest = _one(rest, text, depth + 1)
        return Formula(token, parts=(inner,)), rest  # type: ignore[arg-type]
    if token in ("true", "false"):
        return (TRUE if token == "true" else FALSE), rest
    if token in (")", "&", "|", "->", "U", "R"):
        raise _wrong(text, repr(token))
    return Formula("name", token), rest


def _wrong(text: str, got: str) -> InvalidSetting:
    allowed = "names, true, false, ! & | -> X N F G U and brackets, such as F (at_a & X F at_b) & G !danger"
    return InvalidSetting(f"{text[:200]!r} is no formula.", got=got, allowed=allowed)
