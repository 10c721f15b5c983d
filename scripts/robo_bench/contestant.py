"""A contestant of a benchmark in a process of its own, with the environment variables and defaults that its users have.

Contestants that share a process share its threads, its allocator and the settings of its OpenMP library; none of them then
runs as its users run it. Protocol over standard input and a private pipe, one line of JSON each way: the parent sends the
seconds of a trial, the child answers one figure.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from robo_bench.measurement import Effort, Trial
from robo_rl.errors import RoboRLError

WITH_DEFAULTS = Effort()
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Contestant:
    """A trial in a child process that starts with the first trial and ends with the `with` block.

    function: `module:function`; called once in the child with `arguments` as keywords, returns a Trial.
    effort: its threads are set by the variables that libraries read at start; None leaves the environment of the user as it is.
    Rates are those of processor time if it says so, which leaves out what processes of the contestant's own use.
    """

    def __init__(self, function: str, arguments: Mapping[str, Any] | None = None, effort: Effort = WITH_DEFAULTS) -> None:
        self._function, self._arguments, self._effort = function, dict(arguments or {}), effort
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, seconds: float) -> float:
        """Run one trial of about `seconds` [s] in the child and return its figure. Raises RoboRLError if the child ended."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer below tells more
            process.stdin.write(json.dumps(seconds).encode() + b"\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RoboRLError(
                f"The contestant {self._function} of the benchmark ended before its trial did.",
                got=f"exit status {process.wait()}",
                fix="its own error stands above; --only leaves a case out",
            )
        return float(json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child process, and wait for it."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            process.communicate()  # end of input ends the child
        process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        threads, clock = self._effort.threads, "processor" if self._effort.processor_time else "wall"
        variables = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables
        command = [sys.executable, "-m", "robo_bench.contestant", self._function, json.dumps(self._arguments), clock]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        return self._process


def main(function: str, arguments: str, clock: str) -> None:
    """Answer trials until standard input ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module, _, name = function.partition(":")
    make: Callable[..., Trial] = getattr(importlib.import_module(module), name)
    trial = make(**json.loads(arguments))
    for line in sys.stdin:
        started, used = time.perf_counter(), time.process_time()
        figure = trial(json.loads(line))
        if clock == "processor":
            figure *= (time.perf_counter() - started) / (time.process_time() - used)
        print(json.dumps(figure), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
