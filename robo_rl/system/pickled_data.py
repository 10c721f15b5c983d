"""Read the arrays and plain values of a pickle as data: no name in it is imported, and nothing is called.

A pickle is a program for a stack machine that may import and call anything. Here `pickletools` of the standard library splits
it into instructions, and those that build containers, numbers, texts and arrays are carried out. An instance of a class becomes
an inert `Instance`. Any other instruction is refused (docs/decisions/0027-foreign-pickles-are-read-as-data.md).
"""

from __future__ import annotations

import math
import pickletools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_BYTES = 1 << 26
"""Largest size of a pickle that is read [bytes]."""
MOST_DEPTH = 50
"""Largest depth of nested containers in a pickle."""
DTYPES = {f"{kind}{size}" for kind, sizes in {"f": (2, 4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}.items() for size in sizes}
"""Codes of the element types that are read, without byte order; "b1" is read, too."""


class NotPlainData(ValueError):
    """Error: a pickle holds something other than plain values, arrays and instances made of these."""


@dataclass(frozen=True)
class Symbol:
    """Name of a class or function in a pickle, as data; it is never imported."""

    name: str
    """Module and name, separated by a dot."""


@dataclass
class Instance:
    """Object of some class in a pickle, as data: the class is not imported and no object is made."""

    symbol: str
    arguments: tuple[Any, ...]
    """Arguments of the call that would create the object."""
    state: Any = None
    """State that would be given to the object, usually attributes by name."""


@dataclass
class _Type:
    """Element type of arrays."""

    code: str
    order: str = "<"

    def __post_init__(self) -> None:
        if self.code not in DTYPES | {"b1"}:
            raise NotPlainData(f"elements of type {self.code!r}")

    def made(self) -> np.dtype[Any]:
        return np.dtype({"=": "<", "|": "|"}.get(self.order, self.order) + self.code)


@dataclass
class _Array:
    """Array whose content follows later in the pickle."""

    values: npt.NDArray[Any] | None = field(default=None)


_MARK = object()
_ARRAYS = {"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"}
_SCALARS = {"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"}
_PUSHED = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
"""Instructions that push their argument."""
_TEXTS = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
"""Byte strings of Python 2, which `pickletools` decodes as Latin-1."""
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_FAILURES = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, struct.error)


def read_pickled_data(content: bytes) -> Any:
    """Read a pickle without running it: return its plain values, NumPy arrays and `Instance`s.

    Raises:
        NotPlainData: An instruction would call something else, or the pickle is damaged, too large or nested too deeply.
    """
    if len(content) > MOST_BYTES:
        raise NotPlainData(f"{len(content)} bytes, more than {MOST_BYTES}")
    try:
        return _finished(_Machine().run(content), 0, {})
    except NotPlainData:
        raise
    except _FAILURES as error:
        raise NotPlainData(f"it is damaged: {type(error).__name__}: {str(error)[:200]}") from None


class _Machine:
    """Stack machine for the harmless instructions."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._build: dict[str, Callable[[], None]] = {
            "MARK": lambda: self._stack.append(_MARK),
            "EMPTY_TUPLE": lambda: self._stack.append(()),
            "EMPTY_LIST": lambda: self._stack.append([]),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "TUPLE": lambda: self._stack.append(tuple(self._marked())),
            "TUPLE1": lambda: self._stack.append(tuple(self._popped(1))),
            "TUPLE2": lambda: self._stack.append(tuple(self._popped(2))),
            "TUPLE3": lambda: self._stack.append(tuple(self._popped(3))),
            "LIST": lambda: self._stack.append(self._marked()),
            "DICT": lambda: self._stack.append(_mapping(self._marked())),
            "APPEND": lambda: self._extend(self._popped(1)),
            "APPENDS": lambda: self._extend(self._marked()),
            "SETITEM": lambda: self._set(self._popped(2)),
            "SETITEMS": lambda: self._set(self._marked()),
            "MEMOIZE": lambda: self._remember(len(self._memo)),
            "STACK_GLOBAL": lambda: self._stack.append(Symbol(".".join(map(_text, self._popped(2))))),
            "REDUCE": lambda: self._call(*self._popped(2)),
            "NEWOBJ": lambda: self._new(*self._popped(2)),
            "BUILD": lambda: self._fill(*self._popped(1)),
        }

    def run(self, content: bytes) -> Any:
        """Return the value that the pickle leaves."""
        argument: Any
        for code, argument, _ in pickletools.genops(content):
            name = code.name
            if name in _PUSHED:
                self._stack.append(argument)
            elif name in _TEXTS:
                self._stack.append(argument.encode("latin-1"))
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name == "GLOBAL":
                self._stack.append(Symbol(".".join(argument.split(" "))))
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                self._remember(argument)
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                self._stack.append(self._memo[argument])
            elif name in self._build:
                self._build[name]()
            elif name == "STOP":
                return self._popped(1)[0]
            elif name not in ("PROTO", "FRAME"):
                raise NotPlainData(f"the instruction {name}")
        raise NotPlainData("no end")

    def _popped(self, count: int) -> list[Any]:
        found = self._stack[-count:]
        if len(found) < count or any(value is _MARK for value in found):
            raise NotPlainData("it is damaged: a value is missing")
        del self._stack[-count:]
        return found

    def _marked(self) -> list[Any]:
        """Return the values behind the last mark, which are taken from the stack with it."""
        start = max(index for index, value in enumerate(self._stack) if value is _MARK)
        found = self._stack[start + 1 :]
        del self._stack[start:]
        return found

    def _top(self, kind: type) -> Any:
        if type(self._stack[-1]) is not kind:
            raise NotPlainData(f"{type(self._stack[-1]).__name__} in the place of {kind.__name__}")
        return self._stack[-1]

    def _extend(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def _set(self, items: list[Any]) -> None:
        self._top(dict).update(_mapping(items))

    def _remember(self, number: int) -> None:
        if number > len(self._memo):
            raise NotPlainData("a number of the memo that is too large")
        self._memo[number] = self._stack[-1]

    def _new(self, symbol: Any, arguments: Any) -> None:
        self._stack.append(Instance(_symbol(symbol), tuple(arguments)))

    def _call(self, symbol: Any, arguments: Any) -> None:
        """Push what a call would return: an array, a type, a number or bytes; of any other function an `Instance`."""
        name, arguments = _symbol(symbol), tuple(arguments)
        if name in _ARRAYS:
            self._stack.append(_Array())
        elif name == "numpy.dtype":
            self._stack.append(_Type(_text(arguments[0])))
        elif name in _SCALARS:
            kind, content = arguments
            self._stack.append(_array((), kind, content)[()].item())
        elif name == "collections.OrderedDict":
            self._stack.append(_mapping([part for pair in (arguments or ((),))[0] for part in pair]))
        elif name in ("__builtin__.bytes", "builtins.bytes") and not arguments:
            self._stack.append(b"")
        elif name == "_codecs.encode":
            self._stack.append(str(arguments[0]).encode("latin-1"))  # the only coding that protocol 2 writes bytes in
        else:
            self._stack.append(Instance(name, arguments))

    def _fill(self, state: Any) -> None:
        """Give the object on top of the stack its state."""
        match self._stack[-1]:
            case _Array() as array:
                _, shape, kind, is_fortran, content = state
                array.values = _array(tuple(shape), kind, content, "F" if is_fortran else "C")
            case _Type() as kind:
                kind.order = _text(state[1])
            case Instance() as instance:
                instance.state = state
            case other:
                raise NotPlainData(f"a state of {type(other).__name__}")


def _array(shape: tuple[int, ...], kind: Any, content: Any, order: Any = "C") -> npt.NDArray[Any]:
    """Return an array of exactly these bytes: no shape allocates more than the pickle holds."""
    if not isinstance(kind, _Type) or not isinstance(content, bytes):
        raise NotPlainData("an array of objects")
    made = kind.made()
    if any(not isinstance(size, int) or size < 0 for size in shape) or math.prod(shape) * made.itemsize != len(content):
        raise NotPlainData(f"an array of shape {shape} in {len(content)} bytes")
    return np.frombuffer(content, made).reshape(shape, order=order).astype(made.newbyteorder("="))


def _symbol(value: Any) -> str:
    if not isinstance(value, Symbol):
        raise NotPlainData(f"a call of {type(value).__name__}")
    return value.name


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _mapping(items: list[Any]) -> dict[Any, Any]:
    """Return key, value, key, value, ... as a mapping."""
    keys = items[::2]
    if any(not isinstance(key, str | bytes | int | float | bool | type(None)) for key in keys):
        raise NotPlainData("a key that is neither a number nor a text")
    return dict(zip(keys, items[1::2], strict=True))


def _finished(value: Any, depth: int, done: dict[int, Any]) -> Any:
    """Return a value with arrays in the place of those that were under way; a value of two places is made once."""
    if depth > MOST_DEPTH:
        raise NotPlainData(f"containers in containers, deeper than {MOST_DEPTH}")
    if id(value) not in done:
        done[id(value)] = _made(value, lambda inner: _finished(inner, depth + 1, done))
    return done[id(value)]


def _made(value: Any, finish: Callable[[Any], Any]) -> Any:
    match value:
        case _Array(values=None):
            raise NotPlainData("an array without values")
        case _Array():
            return value.values
        case _Type():
            return value.made().str
        case Instance():
            return Instance(value.symbol, finish(value.arguments), finish(value.state))
        case list() | tuple():
            return type(value)(finish(each) for each in value)
        case dict():
            return {key: finish(each) for key, each in value.items()}
    return value


def arrays_in(value: Any, path: str = "") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays of nested lists and mappings with their paths, such as ("0/observation", array)."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from arrays_in(inner, f"{path}/{_text(key)}".lstrip("/"))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from arrays_in(inner, f"{path}/{index}".lstrip("/"))
