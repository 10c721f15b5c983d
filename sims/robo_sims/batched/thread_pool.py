"""Thread pool for calls of MuJoCo, which release Python's global lock (GIL) while they simulate."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence

from robo_rl.errors import InvalidSetting

Call = Callable[[], object]


def choose_threads(threads: int | None, num_envs: int) -> int:
    """Return the number of threads: `threads`, or the cores of this process if None; at most `num_envs`.

    Raises InvalidSetting unless `threads` is None or an integer from 1.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise InvalidSetting("threads is out of range.", got=threads, allowed="integer from 1, or None for all cores")
    return min(threads or len(os.sched_getaffinity(0)), num_envs)


class ThreadPool:
    """Pool of `threads` threads: the caller of `run` and `threads - 1` helper threads, which run until `close`."""

    def __init__(self, threads: int) -> None:
        self._calls: Iterator[Call] = iter(())
        self._errors: list[BaseException] = []
        self._helpers = [_Helper(self._work, f"simulation-{index}") for index in range(1, threads)]

    def run(self, calls: Sequence[Call]) -> None:
        """Run every call once, in any order; if calls fail, raise the first error after all threads are idle.

        A free thread takes the next call, so that long and short calls balance. `next` of a list iterator is atomic under the
        GIL, so no call runs twice.
        """
        self._calls = iter(calls)
        for helper in self._helpers:
            helper.start()
        self._work()
        for helper in self._helpers:
            helper.wait()
        if self._errors:
            errors, self._errors = self._errors, []
            raise errors[0]

    def close(self) -> None:
        """Stop and join the threads; may be called again."""
        helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.end()

    def _work(self) -> None:
        try:
            for call in self._calls:
                call()
        except BaseException as error:  # of a helper: `run` raises it in the calling thread
            self._errors.append(error)


class _Helper:
    """Helper thread that runs its work on `start`; two bare locks are the cheapest signals."""

    def __init__(self, work: Call, name: str) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._is_out = self._is_ending = False
        self._thread = threading.Thread(target=self._serve, args=(work,), name=name, daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Wake the thread."""
        if self._is_out:  # Ctrl-C interrupted the last `wait`
            self.wait()
        self._is_out = True
        self._go.release()

    def wait(self) -> None:
        """Wait until the thread is done; if it has not begun yet, no calls are left, and it is not woken."""
        if not self._go.acquire(blocking=False):
            self._done.acquire()
        self._is_out = False

    def end(self) -> None:
        """Stop and join the thread."""
        self._is_ending = True
        if self._go.locked():
            self._go.release()
        self._thread.join()

    def _serve(self, work: Call) -> None:
        while True:
            self._go.acquire()
            if self._is_ending:
                return
            work()
            self._done.release()
