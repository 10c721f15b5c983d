"""Handling of signals and errors during a training, so that no step is lost and the user reads how to resume."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from robo_rl.errors import RunError, fix_of, is_of_disk

_exit = os._exit
_ENDED = "The environment, or something that it calls, ended the program."
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what `kill`, job schedulers and containers send first


@contextmanager
def gentle_interruption(request_stop: Callable[[], None]) -> Iterator[None]:
    """Call `request_stop` at the first Ctrl-C or SIGTERM inside the block; the second one has its usual effect.

    In a thread other than the main one this does nothing, because only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        restore()
        request_stop()

    for number in SIGNALS:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()


@contextmanager
def insistent_interruption(seconds: float = 5.0) -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C and SIGTERM inside the block, and again until the block ends.

    A single exception could be lost: Python drops those that are raised within a destructor or a callback of a weak reference,
    and a motion of an arm, for example, would then go on.

    seconds: time between two exceptions.
    """
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        signal.setitimer(signal.ITIMER_REAL, seconds)
        raise KeyboardInterrupt

    usual = {number: signal.signal(number, interrupt) for number in (*SIGNALS, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in usual.items():
            signal.signal(number, handler)


@contextmanager
def resumable(run: Path) -> Iterator[None]:
    """Turn a full or missing disk, and an exit of the program from within, into an error that says how to resume the run."""
    try:
        with loud_exit(f"go on with: robo-rl resume {run}"):
            yield
    except OSError as error:
        if not is_of_disk(error):
            raise
        fix = f"{fix_of(error)}, then go on with: robo-rl resume {run}"
        raise RunError(f"The run {run} cannot be written to.", got=error, fix=fix) from error


@contextmanager
def loud_exit(fix: str) -> Iterator[None]:
    """Turn an exit of the program inside the block into an error, so that no simulator ends a command as if it were done.

    SystemExit becomes RunError, and os._exit gets an error message and a status other than 0. Not noticed: an exit from C
    code, and os._exit if the block runs in a thread other than the main one.

    fix: remedy in the error.
    """
    before, process = os._exit, os.getpid()
    is_main = threading.current_thread() is threading.main_thread()  # two threads would restore each other's function

    def ends(status: int) -> NoReturn:
        if os.getpid() == process:
            print(f"error: {_ENDED}\n  got:     os._exit({status})\n  do:      {fix}", file=sys.stderr, flush=True)
            status = status or 1
        _exit(status)

    if is_main:
        os._exit = ends
    try:
        yield
    except SystemExit as error:
        raise RunError(_ENDED, got=f"SystemExit({error.code!r})", fix=fix) from error
    finally:
        if is_main:
            os._exit = before
