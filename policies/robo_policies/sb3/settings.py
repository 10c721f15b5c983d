"""Conversion of settings given as text: schedules, networks and the Python literals of rl-zoo files.

Nothing is ever evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from robo_rl.errors import InvalidSetting, UnknownName

ACTIVATIONS: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (nn.ReLU, nn.Tanh, nn.ELU, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.SELU, nn.Softplus)
}
LONGEST_EXPRESSION = 2000
"""Largest number of characters of an expression, to bound the memory of the parser."""


@dataclass(frozen=True)
class LinearDecay:
    """Schedule (a function of the remaining share of the training) that falls linearly from `initial` to 0."""

    initial: float

    def __call__(self, progress_remaining: float) -> float:
        """Return the value; `progress_remaining` falls from 1 to 0."""
        return progress_remaining * self.initial


def schedule(value: float | str) -> float | LinearDecay:
    """Convert a setting to a number, or to a LinearDecay for text such as "lin_3e-4"; raises InvalidSetting."""
    text = str(value)
    try:
        return LinearDecay(float(text.removeprefix("lin_"))) if text.startswith("lin_") else float(text)
    except ValueError:
        raise InvalidSetting("Not a schedule.", got=repr(value), allowed='a number, or "lin_" and a number: lin_3e-4') from None


def train_frequency(value: Any) -> int | tuple[int, str]:
    """Convert a setting to SB3's train_freq: a number of steps, or (count, "step" | "episode"); raises InvalidSetting."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, "step")
    if len(pair) != 2 or not isinstance(pair[0], int) or pair[1] not in ("step", "episode"):
        raise InvalidSetting("Not a training frequency.", got=repr(value), allowed="steps, or [count, step | episode]")
    return value if isinstance(value, int) else (pair[0], pair[1])


def policy_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return policy_kwargs with the name of the activation function replaced by its class; raises UnknownName."""
    arguments = dict(settings)
    if "activation_fn" in arguments:
        name = str(arguments["activation_fn"])
        if name not in ACTIVATIONS:
            raise UnknownName("activation", name, ACTIVATIONS)
        arguments["activation_fn"] = ACTIVATIONS[name]
    return arguments


def read_expression(text: str) -> Any:
    """Read the value of a Python expression without evaluating it.

    An example is "dict(net_arch=[64, 64], activation_fn=nn.ReLU)", in which nn.ReLU becomes "ReLU". Known are numbers, strings,
    True, False, None, lists, tuples, dicts, dict(...) and nn.<activation>. Raises InvalidSetting for anything else.
    """
    try:
        if len(text) > LONGEST_EXPRESSION:
            raise ValueError(f"longer than {LONGEST_EXPRESSION} characters")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InvalidSetting(
            "Not a plain expression; it was not evaluated.",
            got=f"{text[:100]!r} ({error})",
            allowed=f"literals, dict(name=...), and nn. with one of {', '.join(ACTIVATIONS)}",
        ) from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_value(_present(key)): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {_present(keyword.arg): _value(keyword.value) for keyword in keywords}
        case ast.Attribute(value=ast.Name(id="nn"), attr=name) if name in ACTIVATIONS:
            return name
    raise ValueError(f"{ast.unparse(node)!r} is none of the known forms")


def _present(value: Any) -> Any:
    if value is None:
        raise ValueError("** is not a known form")
    return value
