"""Time limits for calls of an arm's driver: a call that hangs must block neither watchdog nor server nor the program's end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from robo_real.arm import ArmDriver
from robo_real.audit_log import AuditLog
from robo_rl.errors import RobotUnavailable

T = TypeVar("T")
HANGS = 2.0
"""[s] after which a call that holds the arm, or reads it, counts as hanging"""
GLANCE = 0.1
"""[s] for which the watchdog waits for a hold, since it must go on watching"""
TURN = 5.0
"""Longest time [s] for which a command waits while another thread's command, such as a tare, is carried out."""
CONNECTS, CLOSES = 120.0, 10.0
"""[s] longest time to open and to close a connection"""
DRIVER_HANGS = "driver_hangs"
"""Reason of a fault: a call of the driver does not return"""


class DriverHangs(RobotUnavailable):
    """A call of an arm's driver does not return."""

    def __init__(self, call: str, seconds: float) -> None:
        super().__init__(
            f"The arm's driver does not return from {call}.",
            got=f"nothing within {seconds:g} s",
            fix="look at arm and link",
        )


def within(seconds: float, call: Callable[[], T], name: str) -> T:
    """Run a call in a thread of its own, and wait for its result.

    Args:
        seconds: [s] Longest time to wait.
        call: Function without arguments.
        name: Name of the call, for the error.

    Returns:
        The result of the call.

    Raises:
        DriverHangs: The call has not returned in time; its thread goes on.
        Exception: Any error of the call itself.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # the caller raises it
            answer.set_exception(error)

    threading.Thread(target=run, name=f"driver: {name}", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # the call's own
            raise
        raise DriverHangs(name, seconds) from None


class HoldThread:
    """Thread that calls `hold` of a driver, so that a hold that hangs blocks no other thread. It starts with the first hold."""

    def __init__(self, driver: ArmDriver, log: AuditLog) -> None:
        self._driver, self._log = driver, log
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._ends = False
        self.failed = False
        """True if the newest call of the driver's `hold` raised an error"""
        self._thread: threading.Thread | None = None

    def hold(self, patience: float | None = None) -> bool:
        """Hold the arm; return False if that takes longer than `patience` [s], HANGS by default. Raises nothing."""
        with self._changed:
            if self._thread is None:
                self._thread, self._ends = threading.Thread(target=self._run, name="hold", daemon=True), False
                self._thread.start()
            self._asked += 1
            number = self._asked
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= number, HANGS if patience is None else patience)

    def close(self) -> None:
        """End the thread, unless it hangs."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(HANGS)
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ends or self._asked > self._done)
                if self._asked == self._done:
                    return
                number = self._asked  # one hold answers all who asked before it
            try:
                self._driver.hold()
                self.failed = False
            except Exception as error:
                if not self.failed:  # else one of the repetitions
                    self._log.add("hold_failed", error=f"{type(error).__name__}: {error}")
                self.failed = True
            with self._changed:
                self._done = number
                self._changed.notify_all()
