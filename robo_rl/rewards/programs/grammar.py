"""Grammar of reward programs: a small part of Python; everything else is refused.

`translated` reads a syntax tree and builds a new one from known nodes only: statements here, expressions in
robo_rl.rewards.programs.expressions. The new tree is run and hashed, so that comments and annotations do not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from robo_rl.errors import InvalidProgram
from robo_rl.rewards.programs.expressions import BATCH, MOST_INTEGER, Expressions
from robo_rl.rewards.programs.messages import code, large, refuse, refuse_node
from robo_rl.rewards.programs.vocabulary import FUNCTIONS

NAME = "reward"
MOST_LINES, MOST_NODES, MOST_CHARACTERS = 200, 2_000, 20_000
"""Largest numbers of lines, syntax nodes and characters of a program."""
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0d-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters and changes of reading direction, refused also in comments: a program must be what its text shows."""
MOST_DEPTH = 120
"""Largest depth of nested nodes. Python itself fails at 200 parentheses, or at the end of its stack, which depends on the
caller."""
MOST_TERMS, MOST_ROUNDS, MOST_ROUNDS_NESTED = 32, 64, 1_024
"""Largest numbers of terms that a program returns, of rounds of a loop, and of rounds of nested loops together."""
ANNOTATION = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.Constant, ast.BinOp, ast.BitOr, ast.Load)
TAKEN = {BATCH, NAME, "np", "math", "range", *FUNCTIONS}
"""Names that a program may not assign, because they have a meaning already."""
TERMS = '{"distance": distance, "effort": effort}'


@dataclass(frozen=True)
class Translation:
    """Result of checking a program: a new syntax tree that is safe to run, and what the program returns and reads."""

    tree: ast.Module
    """New syntax tree, made of known nodes only."""
    terms: tuple[str, ...]
    """Names of the terms that the program returns."""
    columns: tuple[str, ...]
    """Names of the columns that the program reads, in order of first use."""


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text; raises InvalidProgram if it is no Python, too large, or has invisible characters."""
    lines = text.count("\n") + 1
    if len(text) > MOST_CHARACTERS or lines > MOST_LINES:
        large(f"{lines} lines, {len(text)} characters", f"{MOST_LINES} lines, {MOST_CHARACTERS} characters")
    if unseen := UNSEEN.search(text):
        line, got = text.count("\n", 0, unseen.start()) + 1, f"U+{ord(unseen[0]):04X}"
        raise InvalidProgram("forbidden", f"Line {line} holds a character that cannot be seen.", got=got, fix="leave it out")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        what, shown = f"Line {error.lineno} is no Python: {error.msg}.", (error.text or "").strip()[:80]
        raise InvalidProgram("syntax", what, got=repr(shown), fix="answer again with the whole program") from None
    except (ValueError, MemoryError, RecursionError) as error:
        large(f"a text that Python cannot read: {type(error).__name__}", "ordinary nesting")
    nodes, depth = _size(tree)
    if nodes > MOST_NODES:
        large(f"{nodes} nodes of syntax", f"{MOST_NODES} nodes")
    if depth > MOST_DEPTH:
        large(f"deep nesting, {depth} levels", f"{MOST_DEPTH} levels; name a part on a line of its own")
    return tree


def _size(tree: ast.Module) -> tuple[int, int]:
    nodes, depth, level = 0, 0, list[ast.AST]([tree])
    while level:
        nodes, depth = nodes + len(level), depth + 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return nodes, depth


def translated(tree: ast.Module, columns: Collection[str] | None) -> Translation:
    """Check a program against the grammar and translate it into a syntax tree that is safe to run.

    columns: names of the columns of a batch; None if they are not known yet. Raises InvalidProgram.
    """
    function = _the_function(tree)
    _check_signature(function)
    lines = _Lines(Expressions(columns, _assigned(function)))
    try:
        body = lines.block(function.body)
    except RecursionError:
        large("deep nesting", "ordinary nesting")
    if lines.terms is None:
        refuse(function, "signature", f"`{NAME}` returns nothing.", allowed=f"return total, {TERMS} as its last line")
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg(BATCH)], kwonlyargs=[], kw_defaults=[], defaults=[])
    made = ast.FunctionDef(name=NAME, args=arguments, body=body, decorator_list=[])
    module = ast.fix_missing_locations(ast.Module(body=[ast.copy_location(made, function)], type_ignores=[]))
    return Translation(module, lines.terms, tuple(lines.expressions.used))


def _the_function(tree: ast.Module) -> ast.FunctionDef:
    """Return the only function of a program; a docstring, and imports of provided modules, are allowed beside it."""
    rest = [node for node in tree.body if not (_is_docstring(node) or _is_provided(node))]
    functions = [node for node in rest if isinstance(node, ast.FunctionDef)]
    for node in rest:
        if not isinstance(node, ast.FunctionDef):
            refuse_node(node, where="outside the function")
    if not functions:
        raise InvalidProgram("signature", "There is no function in the program.", allowed=f"def {NAME}({BATCH}):")
    if len(functions) > 1:
        got = ", ".join(f"`{function.name}`" for function in functions[:5])
        refuse(functions[1], "forbidden", "There is more than one function.", got=got, allowed=f"`{NAME}` and no others")
    return functions[0]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_provided(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return all((name.name, name.asname) in {("numpy", "np"), ("math", None)} for name in node.names)
    return isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in {"typing", "__future__"}


def _check_signature(function: ast.FunctionDef) -> None:
    given = function.args
    others = [*given.posonlyargs, *given.kwonlyargs, *given.defaults, given.vararg, given.kwarg, *function.decorator_list]
    others += getattr(function, "type_params", [])  # from Python 3.12 on
    if function.name != NAME or [argument.arg for argument in given.args] != [BATCH] or any(others):
        decorators = "".join(f"@{code(decorator)} " for decorator in function.decorator_list)
        got, fix = f"{decorators}def {function.name}({code(given)})", "no other arguments, no defaults, no decorators"
        refuse(function, "signature", "The function is another.", got=got, allowed=f"def {NAME}({BATCH}):", fix=fix)
    for annotation in (function.returns, given.args[0].annotation):
        _check_annotation(annotation)


def _check_annotation(annotation: ast.expr | None) -> None:
    """Raise InvalidProgram for an annotation that is no type; annotations are dropped, but one with effects shows an attack."""
    for node in ast.walk(annotation) if annotation is not None else ():
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if not isinstance(node, ANNOTATION) or "__" in name:
            refuse(annotation or node, "forbidden", "An annotation is no type.", got=code(node), allowed="np.ndarray, ...")


def _assigned(function: ast.FunctionDef) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


class _Lines:
    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.terms: tuple[str, ...] | None = None
        self.rounds = 1

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return lines without the docstrings; nothing may follow `return`."""
        made: list[ast.stmt] = []
        for node in body:
            if self.terms is not None:
                refuse(node, "forbidden", "This comes after `return`.", got=code(node), allowed="`return` as the last line")
            if not _is_docstring(node):
                made.append(ast.copy_location(self.line(node), node))
        return made

    def line(self, node: ast.stmt) -> ast.stmt:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self.assignment(node)
            case ast.For(target=ast.Name() as target, iter=iterated, body=body, orelse=[]):
                return self.loop(target, iterated, body)
            case ast.Return(value=ast.Tuple(elts=[total, terms])) if self.rounds == 1:
                return self.result(total, terms)
            case ast.Return():
                allowed = f"return total, {TERMS} as the last line of the function"
                refuse(node, "signature", "The function returns otherwise.", got=code(node), allowed=allowed)
        refuse_node(node)

    def assignment(self, node: ast.stmt) -> ast.stmt:
        expressions = self.expressions
        match node:
            case ast.Assign(targets=[ast.Name() as target], value=ast.Dict() as value):
                return self.dictionary_of_terms(target, value)
            case ast.Assign(targets=[ast.Tuple() as target], value=value):
                return ast.Assign(targets=[self.target(target)], value=expressions.several(value))
            case ast.Assign(targets=targets, value=value):
                return ast.Assign(targets=[self.target(target) for target in targets], value=expressions.value(value))
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value, annotation=annotation):
                _check_annotation(annotation)
                return self.assignment(ast.copy_location(ast.Assign(targets=[target], value=value), node))
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):  # never in place: the name may be a column
                operation = ast.BinOp(left=ast.copy_location(ast.Name(target.id, ast.Load()), node), op=op, right=value)
                made = expressions.value(ast.copy_location(operation, node))
                return ast.Assign(targets=[self.target(target)], value=made)
        refuse(node, "forbidden", "Only plain names take values.", got=code(node), allowed="name = value, np.where, np.stack")

    def target(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Name(id=name):
                if name.startswith("_") or name in TAKEN or name in self.expressions.dictionaries:
                    refuse(node, "forbidden", f"The name {name!r} cannot take a value here.", got=name, allowed="another name")
                return ast.Name(id=name, ctx=ast.Store())
            case ast.Tuple(elts=elements) if all(isinstance(element, ast.Name) for element in elements):
                return ast.Tuple(elts=[self.target(element) for element in elements], ctx=ast.Store())
        refuse(node, "forbidden", "Only plain names take values.", got=code(node), allowed="name = value, np.where, np.stack")

    def loop(self, target: ast.Name, iterated: ast.expr, body: Sequence[ast.stmt]) -> ast.stmt:
        bounds = _range(iterated)
        outer, self.rounds = self.rounds, self.rounds * max(2, len(bounds))
        if len(bounds) > MOST_ROUNDS or self.rounds > MOST_ROUNDS_NESTED:
            allowed = f"{MOST_ROUNDS} rounds, {MOST_ROUNDS_NESTED} of loops in loops together"
            refuse(iterated, "too large", "The loop is too long.", got=code(iterated), allowed=allowed)
        name, inner = self.target(target), self.block(body)
        if not inner:
            refuse(iterated, "forbidden", "The loop does nothing.", allowed="a loop that computes something")
        self.rounds = outer
        steps: list[ast.expr] = [ast.Constant(bound) for bound in (bounds.start, bounds.stop, bounds.step)]
        call = ast.Call(func=ast.Name("_range", ast.Load()), args=steps, keywords=[])
        return ast.For(target=name, iter=call, body=inner, orelse=[])

    def dictionary_of_terms(self, target: ast.Name, value: ast.Dict) -> ast.stmt:
        if self.rounds > 1:
            refuse(value, "forbidden", "The dictionary of terms is made in a loop.", got=target.id, allowed="once, after it")
        names, values = self.dictionary(value)
        made = ast.Assign(targets=[self.target(target)], value=values)
        self.expressions.dictionaries[target.id] = names
        return made

    def dictionary(self, node: ast.Dict) -> tuple[tuple[str, ...], ast.Tuple]:
        names = tuple(_term_name(key, node) for key in node.keys)
        if len(set(names)) < len(names) or len(names) > MOST_TERMS:
            got, allowed = ", ".join(names)[:200], f"at most {MOST_TERMS}, each once"
            refuse(node, "forbidden", "The names of terms repeat, or are too many.", got=got, allowed=allowed)
        return names, ast.Tuple(elts=[self.expressions.value(value) for value in node.values], ctx=ast.Load())

    def result(self, total: ast.expr, terms: ast.expr) -> ast.stmt:
        dictionaries = self.expressions.dictionaries
        if isinstance(terms, ast.Dict):
            names, values = self.dictionary(terms)
            shown: ast.expr = values
        elif isinstance(terms, ast.Name) and terms.id in dictionaries:
            names, shown = dictionaries[terms.id], ast.Name(terms.id, ast.Load())
        else:
            refuse(
                terms, "signature", "The terms are no plain dictionary.", got=code(terms), allowed=f"{TERMS}, written out once"
            )
        made = ast.Return(value=ast.Tuple(elts=[self.expressions.value(total), shown], ctx=ast.Load()))
        self.terms = names
        return made


def _term_name(key: ast.expr | None, node: ast.Dict) -> str:
    name = key.value if isinstance(key, ast.Constant) else None
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.ASCII):
        return name
    got = "**" if key is None else code(key)
    refuse(node, "forbidden", "The name of a term is no plain name.", got=got, allowed='"distance": letters, digits, _')


def _range(node: ast.expr) -> range:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        numbers = [_integer(argument) for argument in node.args]
        known = [number for number in numbers if number is not None and abs(number) <= MOST_INTEGER]
        if 1 <= len(known) == len(numbers) <= 3 and known[2:] != [0]:
            return range(*known)
    allowed = "range(n) with n written out; rows need no loop, arrays hold all N at once"
    refuse(node, "forbidden", "The loop runs over something else.", got=code(node), allowed=allowed)


def _integer(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _integer(node.operand)
        return None if number is None else -number
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
