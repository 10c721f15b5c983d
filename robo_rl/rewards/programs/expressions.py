"""Expressions of reward programs: each method checks one kind of syntax, and builds a new node from known parts.

A node without a method is refused. The result has no attribute access, computes with no text, and calls only plain names that
stand for listed functions: `np.linalg.norm` becomes `_np_linalg_norm`. Methods of arrays are rewritten: `x.sum(axis=1)` becomes
`_np_sum(x, axis=1)`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from robo_rl.rewards.programs.messages import close, code, functions, listed, refuse, refuse_node
from robo_rl.rewards.programs.vocabulary import CONSTANTS, FUNCTIONS, METHODS, PROPERTIES, TYPES, mangled

BATCH = "batch"
MODULES = {"np", "math", "numpy"}
MOST_TEXT, MOST_INTEGER, MOST_EXPONENT = 64, 10**9, 8
"""Characters of the name of a column; size of an integer and of an exponent."""
BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult, ast.BitAnd, ast.BitOr, ast.BitXor)
UNARY = (ast.USub, ast.UAdd, ast.Invert)
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
EINSUM = re.compile(r"(\.\.\.)?[a-z]{0,4}(,(\.\.\.)?[a-z]{0,4}){0,2}->(\.\.\.)?[a-z]{0,4}")


@dataclass
class Expressions:
    """Checks the expressions of one reward program, and rewrites them with known functions only."""

    columns: Collection[str] | None
    """Names of the columns of a batch; None if they are unknown."""
    names: frozenset[str]
    """Names to which the function assigns values."""
    used: dict[str, None] = field(default_factory=dict)
    """Columns that were read, in order of first use."""
    dictionaries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a dictionary of terms -> names of its terms."""

    def several(self, node: ast.expr) -> ast.expr:
        """Check the right side of an assignment, which may be a tuple, as in `a, b = x, y`; return it rewritten.

        Raises InvalidProgram if a part is not allowed.
        """
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple(elts=[self.value(element) for element in node.elts], ctx=ast.Load()), node)
        return self.value(node)

    def _argument(self, node: ast.expr) -> ast.expr:
        """Return a checked argument, which may be a nested list or tuple of expressions; raises InvalidProgram."""
        if isinstance(node, ast.Tuple | ast.List):
            made = ast.Tuple if isinstance(node, ast.Tuple) else ast.List
            return ast.copy_location(made(elts=[self._argument(element) for element in node.elts], ctx=ast.Load()), node)
        return self.value(node)

    def value(self, node: ast.expr) -> ast.expr:
        """Check a single expression and return it rewritten; raises InvalidProgram if it is not allowed."""
        return ast.copy_location(self._expression(node), node)

    def _expression(self, node: ast.expr) -> ast.expr:  # noqa: PLR0911 (one for each kind)
        match node:
            case ast.Constant(value=bool() | int() | float() | None as number):
                return ast.Constant(_number(number, node))
            case ast.Name(id=name):
                return self._name(name, node)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare():
                return self._operation(node)
            case ast.Subscript(value=ast.Name(id="batch"), slice=key):
                return self._column(key)
            case ast.Subscript(value=value, slice=index):
                return ast.Subscript(value=self.value(value), slice=self._index(index), ctx=ast.Load())
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
        refuse_node(node)

    def _operation(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return ast.BinOp(left=_float(self.value(left)), op=ast.Pow(), right=self._exponent(right))
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, BINARY):
                return ast.BinOp(left=self.value(left), op=op, right=self.value(right))
            case ast.UnaryOp(op=op, operand=operand) if isinstance(op, UNARY):
                return ast.UnaryOp(op=op, operand=self.value(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, COMPARISONS):
                return ast.Compare(left=self.value(left), ops=[op], comparators=[self.value(right)])
            case ast.UnaryOp(op=op) | ast.BinOp(op=op):
                refuse_node(op, node)
        allowed = "one of < <= > >= == !=; for two conditions np.logical_and(a < b, b < c)"
        refuse(node, "forbidden", "That comparison cannot look at N rows at once.", got=code(node), allowed=allowed)

    def _name(self, name: str, node: ast.expr) -> ast.expr:
        if name in self.dictionaries:
            refuse(node, "forbidden", "The dictionary of terms is used before `return`.", got=name, allowed="the term itself")
        if name in self.names and not name.startswith("_"):
            return ast.Name(id=name, ctx=ast.Load())
        if name == BATCH:
            refuse(node, "forbidden", "`batch` is used as a whole.", got=BATCH, allowed='batch["name"]')
        allowed = "names that the function gives values to" + close(name, [*self.names, *FUNCTIONS])
        refuse(node, "forbidden", f"The name {name!r} is not known here.", got=name, allowed=allowed)

    def _column(self, key: ast.expr) -> ast.expr:
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            what = "A column is asked for by something else than its name."
            refuse(key, "forbidden", what, got=code(key), allowed='batch["x"]')
        name = key.value
        if len(name) > MOST_TEXT:
            refuse(key, "too large", "A name is too long.", got=f"{len(name)} characters", allowed=f"{MOST_TEXT} characters")
        if not name.isprintable():  # it is shown in errors on a missing column
            refuse(key, "forbidden", "A name holds what cannot be printed.", got=name, allowed='batch["x"]')
        if self.columns is not None and name not in self.columns:
            allowed = listed(self.columns) + close(name, self.columns)
            refuse(key, "unknown column", f"There is no column {name!r}.", got=name, allowed=allowed)
        self.used[name] = None
        return ast.Subscript(value=ast.Name(BATCH, ast.Load()), slice=ast.Constant(name), ctx=ast.Load())

    def _index(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Slice(lower=lower, upper=upper, step=step):
                parts = [None if part is None else self.value(part) for part in (lower, upper, step)]
                return ast.copy_location(ast.Slice(*parts), node)
            case ast.Tuple(elts=elements):
                return ast.copy_location(ast.Tuple(elts=[self._index(element) for element in elements], ctx=ast.Load()), node)
            case ast.Constant(value=value) if value is ...:
                return ast.Constant(...)
            case ast.List():
                return self._argument(node)
        return self.value(node)

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        dotted = _dotted(node)
        if dotted is not None and dotted in CONSTANTS:
            return ast.Name(id=mangled(dotted), ctx=ast.Load())
        if dotted is not None and dotted.partition(".")[0] in MODULES:
            refuse(node, "forbidden", f"`{dotted}` is not there.", got=dotted, allowed=functions(dotted))
        if node.attr in PROPERTIES:
            return self._made(PROPERTIES[node.attr], [self.value(node.value)], [])
        allowed = f"of arrays .{' .'.join(PROPERTIES)}, and as calls .{'() .'.join(METHODS)}()"
        refuse(node, "forbidden", f"The attribute {node.attr!r} is not there.", got=code(node), allowed=allowed)

    # calls

    def _call(self, node: ast.Call) -> ast.expr:
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(word.arg is None for word in node.keywords):
            refuse(node, "forbidden", "Arguments are unpacked.", got=code(node), allowed="arguments one by one, no * and no **")
        dotted = _dotted(node.func)
        if dotted is not None and dotted in FUNCTIONS:
            return self._function(dotted, node)
        if isinstance(node.func, ast.Attribute) and (dotted is None or dotted.partition(".")[0] in self.names):
            return self._method(node.func, node)
        got = code(node.func)
        refuse(node, "forbidden", f"The function `{got}` is not there.", got=got, allowed=functions(got))

    def _function(self, dotted: str, node: ast.Call) -> ast.expr:
        if dotted == "np.einsum":
            return self._einsum(node)
        if dotted == "np.power":
            self._check_arity(dotted, len(node.args), node)
            return self._made(dotted, [_float(self.value(node.args[0])), self._exponent(node.args[1])], node.keywords, node)
        return self._made(dotted, [self._argument(argument) for argument in node.args], node.keywords, node)

    def _method(self, function: ast.Attribute, node: ast.Call) -> ast.expr:
        """`x.sum(axis=1)` becomes `np.sum(x, axis=1)`."""
        name = function.attr
        if name not in METHODS:
            allowed = f".{'() .'.join(METHODS)}()"
            refuse(node, "forbidden", f"The method {name!r} is not there.", got=code(function), allowed=allowed)
        array = self.value(function.value)
        if name == "astype":
            if len(node.args) != 1 or node.keywords:
                refuse(node, "forbidden", "`astype` takes one type.", got=code(node), allowed=", ".join(TYPES))
            return self._made("np.array", [array], [ast.keyword("dtype", node.args[0])], node)
        arguments = [self._argument(argument) for argument in node.args]
        if name in {"reshape", "transpose"} and len(arguments) > 1:
            arguments = [ast.Tuple(elts=arguments, ctx=ast.Load())]
        return self._made(METHODS[name], [array, *arguments], node.keywords, node)

    def _made(
        self, dotted: str, arguments: list[ast.expr], keywords: Sequence[ast.keyword], node: ast.expr | None = None
    ) -> ast.expr:
        if node is not None:
            self._check_arity(dotted, len(arguments), node)
        words = [ast.keyword(word.arg, self._keyword(dotted, word)) for word in keywords]
        return ast.Call(func=ast.Name(id=mangled(dotted), ctx=ast.Load()), args=arguments, keywords=words)

    @staticmethod
    def _check_arity(dotted: str, number: int, node: ast.expr) -> None:
        call = FUNCTIONS[dotted]
        if not call.least <= number <= call.most:
            allowed = f"{call.least} to {call.most}" if call.least < call.most else f"{call.most}"
            got, what = f"{number} in {code(node)}", f"`{dotted}` takes other arguments here."
            refuse(node, "forbidden", what, got=got, allowed=f"{allowed} by position; no `out`")

    def _keyword(self, dotted: str, word: ast.keyword) -> ast.expr:
        if word.arg not in FUNCTIONS[dotted].keywords:
            allowed = ", ".join(sorted(FUNCTIONS[dotted].keywords)) or "no keyword"
            refuse(word.value, "forbidden", f"`{dotted}` takes no {word.arg!r} here.", got=f"{word.arg}=", allowed=allowed)
        if word.arg != "dtype":
            return self._argument(word.value)
        named = _dotted(word.value)
        if named not in TYPES:
            refuse(word.value, "forbidden", "That type is not there.", got=code(word.value), allowed=", ".join(TYPES))
        return ast.Name(id=mangled(f"type.{named}"), ctx=ast.Load())

    def _einsum(self, node: ast.Call) -> ast.expr:
        pattern = node.args[0] if node.args else node
        if not (isinstance(pattern, ast.Constant) and isinstance(pattern.value, str) and EINSUM.fullmatch(pattern.value)):
            allowed = 'a text such as "ni,ni->n", at most three arrays of at most four axes'
            refuse(node, "forbidden", "The pattern of `np.einsum` is another.", got=code(pattern), allowed=allowed)
        arrays = [self.value(argument) for argument in node.args[1:]]
        return self._made("np.einsum", [ast.Constant(pattern.value), *arrays], node.keywords, node)

    def _exponent(self, node: ast.expr) -> ast.expr:
        sign, number = (-1, node.operand) if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else (1, node)
        value = number.value if isinstance(number, ast.Constant) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST_EXPONENT:
            allowed = f"a number written out, at most {MOST_EXPONENT} in size; else np.exp(b * np.log(a))"
            refuse(node, "forbidden", "The exponent is another.", got=code(node), allowed=allowed)
        return ast.copy_location(ast.Constant(sign * value), node)


def _number(number: int | float | None, node: ast.expr) -> int | float | None:
    if (isinstance(number, int) and abs(number) > MOST_INTEGER) or (isinstance(number, float) and not math.isfinite(number)):
        allowed = f"integers of at most {MOST_INTEGER:.0e} in size, finite numbers"
        refuse(node, "too large", "A number is too large.", got=code(node)[:40], allowed=allowed)
    return number


def _float(node: ast.expr) -> ast.expr:
    """Return an integer constant as a float, because powers of integers may grow without limit; other nodes unchanged."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return ast.copy_location(ast.Constant(float(node.value)), node)
    return node


def _dotted(node: ast.expr) -> str | None:
    """Return the text of a chain of names, such as "np.linalg.norm"; None for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None
