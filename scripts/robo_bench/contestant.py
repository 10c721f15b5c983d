"""Contestant of a benchmark in its own process, with the environment variables and defaults of its users.

Contestants that share a process share its threads, its allocator and the settings of its OpenMP library; none of them then
runs under its usual conditions. Protocol over standard input and a private pipe, one line of JSON each way: the parent sends
the seconds of a trial, the child answers one figure.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robo_bench.measurement import Effort, Trial
from robo_rl.errors import RoboRLError

WITH_DEFAULTS = Effort()
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextlib.contextmanager
def contestant(
    function: str, arguments: Mapping[str, Any] | None = None, effort: Effort = WITH_DEFAULTS, python: str = sys.executable
) -> Iterator[Trial]:
    """Give a trial in a child process that ends with the block. Raises RoboRLError if the child ends before a trial does.

    function: `module:function`; called once in the child with `arguments` as keywords, returns a Trial.
    effort: its threads are set by the variables that libraries read at start; None leaves the environment of the user as it is.
    Rates are those of processor time if it says so, without child processes of the contestant.
    python: interpreter; another one has its own packages, also its own version of the project, and these benchmarks.
    """
    variables = {} if effort.threads is None else dict.fromkeys(THREAD_VARIABLES, str(effort.threads))
    paths = list(filter(None, sys.path)) if python == sys.executable else [str(Path(__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
    clock = "processor" if effort.processor_time else "wall"
    command = [python, "-m", "robo_bench.contestant", function, json.dumps(arguments or {}), clock]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdin is not None and process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def trial(seconds: float) -> float:
        with contextlib.suppress(BrokenPipeError):  # the missing answer below says more
            questions.write(json.dumps(seconds).encode() + b"\n")
            questions.flush()
        if answer := answers.readline():
            return float(json.loads(answer))
        raise RoboRLError(
            f"The contestant {function} of the benchmark ended before its trial did.",
            got=f"exit status {process.wait()}",
            fix="its own error stands above; --only leaves a case out",
        )

    try:
        yield trial
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.communicate()  # end of input ends the child
        process.wait()


def main(function: str, arguments: str, clock: str) -> None:
    """Answer trials until standard input ends. Output of libraries goes to standard error."""
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
