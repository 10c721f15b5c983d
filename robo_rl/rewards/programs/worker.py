"""Process that runs reward programs; robo_rl.rewards.programs.sandbox starts it as a fresh interpreter.

It reads its settings from standard input, maps the two memories, loads numpy and uses every part of it once, drops its rights
(robo_rl.rewards.programs.confinement), and only then loads the program. From then on it waits for one byte, computes, and
answers with one byte. No other module of the workbench is loaded.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import mmap
import os
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from robo_rl.rewards.programs import geometry
from robo_rl.rewards.programs.confinement import confine
from robo_rl.rewards.programs.geometry import row_mean, row_norm, row_sum
from robo_rl.rewards.programs.shared_memory import Array, ColumnLayout, Layout
from robo_rl.rewards.programs.vocabulary import BUILTINS, CONSTANTS, FUNCTIONS, GEOMETRY, TYPES, mangled

READY, REFUSED, RUN, DONE, RAISED, SHAPE, MEMORY = b"g", b"x", b"r", b"d", b"e", b"s", b"m"
"""Single bytes that parent and worker send each other: requests, and outcomes of a batch."""
FILE = "program"
MOST_HANDLES = 1_024
"""Number of file descriptors that are closed; more than a new process has."""
Function = Callable[[dict[str, Array]], Any]


def main() -> None:
    """Serve one program until the parent closes the pipe."""
    settings = json.load(sys.stdin)
    os.environ.clear()
    columns = {name: ColumnLayout(dtype, tuple(shape)) for name, (dtype, shape) in settings["columns"].items()}
    layout = Layout(columns, len(settings["terms"]), settings["rows"])
    asked, answered, source, sink = (settings[name] for name in ("asked", "answered", "source", "sink"))
    memory_in = mmap.mmap(source, layout.bytes_in, prot=mmap.PROT_READ)
    memory_out = mmap.mmap(sink, layout.bytes_out)
    for handle in set(range(MOST_HANDLES)) - {asked, answered}:  # also the copies that the maps keep of their files
        os.closerange(handle, handle + 1)
    try:
        warm_up()
        system_calls, is_needed = bytes.fromhex(settings["system_calls"]), not settings["without_seccomp"]
        guards = confine(settings["memory"], settings["seconds"], system_calls, is_needed)
    except Exception as error:
        layout.write_message(memory_out, str(error))
        os.write(answered, REFUSED)
        return
    gc.disable()  # a program makes no cycles, and the collector would cost time at any moment
    layout.write_message(memory_out, ", ".join(guards))
    os.write(answered, READY)
    Server(settings, layout, memory_in, memory_out).serve(asked, answered)


class Server:
    """Loop of the worker process: answers each request, one byte, with one byte, and computes a batch in between.

    The program is loaded at the first request, so that loading counts as running.
    """

    def __init__(self, settings: dict[str, Any], layout: Layout, memory_in: mmap.mmap, memory_out: mmap.mmap) -> None:
        self.settings, self.layout = settings, layout
        self.memory_in, self.memory_out = memory_in, memory_out
        self.function: Function | None = None
        self.rows = -1
        self.views: dict[str, Array] = {}

    def serve(self, asked: int, answered: int) -> None:
        """Answer requests until the parent closes the pipe; asked, answered: numbers of the file descriptors."""
        while os.read(asked, 1) == RUN:
            os.write(answered, self.answer())

    def answer(self) -> bytes:
        """Compute one batch; return the byte for its outcome, with details in the message."""
        try:
            if self.function is None:
                self.function = loaded(self.settings["code"], self.settings["is_free"])
            rows = int.from_bytes(self.memory_in[:8], "little")
            if rows != self.rows:
                self.rows, self.shape, self.views = rows, (rows,), self.layout.inputs(self.memory_in, rows)
                self.room = self.layout.outputs(self.memory_out, rows)
            total, terms = self.function(self.views)
            problem = self.written(total, terms)
        except MemoryError:
            return MEMORY
        except BaseException as error:
            with contextlib.suppress(BaseException):
                self.layout.write_message(self.memory_out, described(error))
            return RAISED
        if problem:
            self.layout.write_message(self.memory_out, problem)
            return SHAPE
        return DONE

    def written(self, total: object, terms: Any) -> str:
        """Copy the results of the program into shared memory.

        Returns:
            What is wrong with their shapes, in words; "" if nothing is.
        """
        for row, values in enumerate((total, *terms)):
            shape = values.shape if type(values) is np.ndarray else np.shape(values)
            if shape != self.shape:
                name = "the total" if row == 0 else f"the term {self.settings['terms'][row - 1]!r}"
                return f"{name} has shape {shape}"
            self.room[row] = values
        return ""


def loaded(code: str, is_free: bool = False) -> Function:
    """Compile checked code and return its function `reward`; is_free: True only in tests, which run unchecked code."""
    namespace: dict[str, Any] = {"__builtins__": __builtins__, "np": np, "math": math} if is_free else vocabulary()
    exec(compile(code, FILE, "exec", dont_inherit=True), namespace)
    function: Function = namespace["reward"]
    return function


def vocabulary() -> dict[str, Any]:
    """Return everything that checked code may use, by the names in it; Python's own names are left out."""
    names: dict[str, Any] = {"__builtins__": {}, "_range": range}
    origins = {"np": np, "math": math}
    for name in (*FUNCTIONS, *CONSTANTS):
        origin, *parts = name.split(".")
        if name in BUILTINS:
            names[mangled(name)] = getattr(__import__("builtins"), name)
        elif name in GEOMETRY:
            names[mangled(name)] = getattr(geometry, name)
        else:
            value: Any = origins[origin]
            for part in parts:
                value = getattr(value, part)
            names[mangled(name)] = value
    names |= {mangled("np.sum"): row_sum, mangled("np.mean"): row_mean, mangled("np.linalg.norm"): row_norm}
    types = {"float": float, "int": int, "bool": bool}
    return names | {mangled(f"type.{name}"): types.get(name) or getattr(np, name.removeprefix("np.")) for name in TYPES}


def described(error: BaseException) -> str:
    """Describe an error as "LINE TYPE: TEXT", with the line of the program that raised it, 0 for none."""
    trace: TracebackType | None = error.__traceback__
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{line} {type(error).__name__}: {str(error)[:1000]}"


def warm_up() -> None:
    """Use all parts of numpy that load files on first use, and raise its errors once, because files cannot be opened later."""
    np.seterr(all="ignore")  # the parent finds numbers that are not finite
    warnings.simplefilter("ignore")  # they would go to a closed stream, and load more modules
    one, many = np.ones((2, 3)), np.ones((4, 5))
    for name in ["sum", "mean", "std", "var", "min", "max", "prod", "any", "all", "argmin", "argmax", "median"]:
        getattr(np, name)(one, axis=1)
    np.einsum("ni,ni->n", one, one), np.linalg.norm(one, axis=1), np.cross(one, one), np.sort(one), np.round(one, 1)
    np.select([one > 0], [one], 0), np.interp(one[0], one[0], one[0]), np.isclose(one, one), one.astype(bool), str(one)
    geometry.transform_points(one, np.ones((2, 4)), np.ones((2, 5, 3)))
    geometry.point_cloud_min_dist(np.ones((2, 5, 3)), np.ones((2, 4, 3)))
    wrong: list[Callable[[], object]] = [
        lambda: one + many,
        lambda: one @ many,
        lambda: np.sum(one, axis=7),
        lambda: bool(one),
        lambda: one[9],
        lambda: np.stack([one, many]),
        lambda: np.concatenate([one, many]),
        lambda: one & one,  # type: ignore[operator]
        lambda: np.zeros(2**60),
        lambda: one.reshape(7),
        lambda: np.sqrt("a"),
    ]
    for mistake in wrong:
        try:
            mistake()
        except Exception as error:
            described(error)


if __name__ == "__main__":
    main()
