"""Control loop for an arm without one: reads set points at a fixed rate and sends them to the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from robo_real.arm import ArmDriver, ArmTarget, SetPoint
from robo_real.course import Course
from robo_rl.errors import RobotUnavailable


class Ticker:
    """One thread per arm, from `start` to `close`."""

    def __init__(
        self,
        driver: ArmDriver,
        course: Course,
        *,
        watches: Callable[[], bool],
        hold: Callable[[], None],
        lost: Callable[[float], None],
    ) -> None:
        """watches: whether the arm may be moved, so that it is to be measured. hold: makes it stay; raises nothing.

        lost: called with how long [s] it could not be measured or moved, at each tick at which it could not.
        """
        self._driver, self._course, self._watches, self._hold, self._lost = driver, course, watches, hold, lost
        self.failure: RobotUnavailable | None = None
        """Why the arm could not be measured or moved at the last tick"""
        self._lost_at = np.inf
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="set points", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._done.set()
        self._course.changed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        clock, period = self._driver.clock, self._course.period
        speed = getattr(clock, "speed", 1.0)
        while not self._done.is_set():
            due = clock.now() + period
            if self._watches():
                self._tick()
            else:
                self._found()
            if self._course.is_under_way:
                self._done.wait(max(due - clock.now(), 0.0) / speed)
            else:
                self._course.changed.wait(period / speed)  # a first command waits for no tick
            self._course.changed.clear()

    def _tick(self) -> None:
        driver = self._driver
        try:
            state = driver.read()
            self._tell(self._course.tick(state, driver.clock.now()))
            self._found()
        except Exception as error:  # a driver of somebody else's, too, must not end the thread that watches its arm
            known = error if isinstance(error, RobotUnavailable) else None
            self.failure = known or RobotUnavailable("The arm's driver failed.", got=_words(error))
            self._lost_at = min(self._lost_at, driver.clock.now())
            self._lost(driver.clock.now() - self._lost_at)

    def _found(self) -> None:
        self.failure, self._lost_at = None, np.inf

    def _tell(self, point: SetPoint | None) -> None:
        if point is None:
            return
        if isinstance(point, ArmTarget):
            self._driver.move(point)
            if self._course.is_under_way:
                return
        self._hold()  # also if somebody stopped the arm while it was told to move


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
