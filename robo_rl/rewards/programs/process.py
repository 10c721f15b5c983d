"""Start, feed and end the process that runs a reward program: the side of the parent process.

Columns are copied into memory that the process can only read. Its results are copied out of shared memory before they are read,
and never used as a name, a size or code. Neither memory has a name; both are freed when the last process releases them. A byte
through a pipe wakes either side.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import robo_rl
from robo_rl.errors import SandboxUnavailable
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.shared_memory import Layout
from robo_rl.rewards.programs.system_calls import TELL
from robo_rl.rewards.programs.worker import READY, RUN
from robo_rl.system.supervised_process import SupervisedProcess, ending
from robo_rl.types import Array

MAIN = "import sys; sys.path += {paths!r}; from robo_rl.rewards.programs.worker import main; main()"
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1")
"""Complete set of environment variables of the process. More threads would need system calls that are refused."""
F_SEAL_FUTURE_WRITE = 0x10  # linux/fcntl.h; Python names it from 3.13 on
TIMEOUT, ENDED = b"timeout", b""
"""Answers that stand for a process that sent none: it took too long, or it ended. A real answer is another single byte."""
REPLACED, KILLED = 8, 10
"""Multiples of a batch's time limit, in CPU time. After the first, in sum over its batches, a process is replaced; at the
second the system kills it."""


class Process:
    """Worker process that runs one reward program; its CPU time is limited, and it is replaced before it reaches the limit."""

    def __init__(self, settings: dict[str, Any], layout: Layout, limits: Limits) -> None:
        self.layout, self.limits = layout, limits
        self.seconds_left = REPLACED * limits.seconds
        source, self.memory_in = _memory(layout.bytes_in, F_SEAL_FUTURE_WRITE)
        sink, self.memory_out = _memory(layout.bytes_out)
        (asked, ask), (answers, answered) = os.pipe(), os.pipe()
        self.ask, self.answers = ask, answers
        handles: dict[str, Any] = {"asked": asked, "answered": answered, "source": source, "sink": sink}
        handles |= {"memory": limits.memory, "seconds": KILLED * limits.seconds, "without_seccomp": limits.without_seccomp}
        starting = _launcher(os.getpid()).submit(_started, settings | handles, (asked, answered, source, sink))
        self.process = starting.result()
        self.stop = weakref.finalize(self, _end, self.process, (ask, answers))
        for handle in (asked, answered, source, sink):
            os.close(handle)
        self.poll = select.poll()
        self.poll.register(answers, select.POLLIN)
        self.seconds = 0.0  # of the last batch
        self.rows = -1
        self.inputs: Mapping[str, Array] = {}
        self.kinds: Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]] = ()
        self.guards = self._greeted()

    def _greeted(self) -> tuple[str, ...]:
        answer = self._answer(self.limits.start_seconds)
        if answer == READY:
            return tuple(self.message().split(", "))
        got = "no answer in time" if answer == TIMEOUT else self.message() or self.ending()
        self.stop()
        raise SandboxUnavailable("The process that runs reward programs did not start.", got=got, fix=f"mend that, {TELL}")

    def is_like(self, columns: Mapping[str, Array]) -> bool:
        """Return True if the columns are arrays of the same types and shapes as those of the last batch."""
        for name, dtype, shape in self.kinds:
            column = columns.get(name)
            if type(column) is not np.ndarray or column.dtype is not dtype or column.shape != shape:
                return False
        return self.rows > 0 and bool(self.kinds)  # without a column, the number of rows is unknown

    def computed(self, columns: Mapping[str, Array], rows: int) -> tuple[bytes, npt.NDArray[np.float64]]:
        """Compute one batch; return the answer byte, and a copy of the results (1 + terms, rows).

        For speed, everything that depends only on the number of rows is cached.
        """
        if rows != self.rows:
            self.rows, self.inputs = rows, self.layout.inputs(self.memory_in, rows)
            self.kinds = [(name, view.dtype, view.shape) for name, view in self.inputs.items()]
            self.results = self.layout.outputs(self.memory_out, rows)
            self.memory_in[:8] = rows.to_bytes(8, "little")
        for name, view in self.inputs.items():
            view[...] = columns[name]
        self.results[0] = np.nan  # a total that it does not write is missing, not the previous one
        started = time.perf_counter()
        os.write(self.ask, RUN)
        answer = self._answer(self.limits.seconds)
        self.seconds = time.perf_counter() - started
        self.seconds_left -= self.seconds
        return answer, self.results.copy()

    def _answer(self, seconds: float) -> bytes:
        if not self.poll.poll(seconds * 1000):
            return TIMEOUT
        answer = os.read(self.answers, 16)
        return TIMEOUT if answer == ENDED and self._used_up_its_core() else answer

    def _used_up_its_core(self) -> bool:
        """Return True if the kernel ended the process for its CPU time, which on a busy machine may precede the time limit."""
        return self.process.wait(timeout=1) == -signal.SIGXCPU

    def message(self) -> str:
        """Return the text that the process left in shared memory, such as an error."""
        return self.layout.read_message(self.memory_out)

    def ending(self) -> str:
        """Return in words how the process ended, such as by a signal."""
        return ending(self.process.wait(timeout=1))


def _memory(size: int, seals: int = 0) -> tuple[int, mmap.mmap]:
    """Return a file descriptor of unnamed memory, and the memory, whose size is sealed, since access beyond it would crash."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("robo-rl-rewards", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    memory = mmap.mmap(handle, size)
    if hasattr(fcntl, "F_ADD_SEALS"):
        with contextlib.suppress(OSError):  # before Linux 5.1
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return handle, memory


@functools.cache
def _launcher(owner: int) -> ThreadPoolExecutor:
    """Return the only thread of this process that starts workers, which exists as long as the process.

    Linux ends a process with the *thread* that started it (PR_SET_PDEATHSIG). A forked copy gets its own thread.
    """
    return ThreadPoolExecutor(1, f"robo-rl-sandbox-{owner}")


def _started(settings: dict[str, Any], handles: tuple[int, ...]) -> SupervisedProcess:
    """Start an interpreter that sees only the standard library, this package and numpy, and send it its settings."""
    roots = dict.fromkeys(str(Path(package.__file__ or "").parents[1]) for package in (robo_rl, np))
    process = SupervisedProcess(
        [sys.executable, "-I", "-S", "-B", "-c", MAIN.format(paths=list(roots))],
        log=Path(os.devnull),
        descriptors=handles,
        stdin=subprocess.PIPE,
        environment=ENVIRONMENT,
        folder="/",
    )
    process.write(json.dumps(settings).encode())
    return process


def _end(process: SupervisedProcess, handles: tuple[int, ...]) -> None:
    for handle in handles:
        os.close(handle)
    process.stop()
