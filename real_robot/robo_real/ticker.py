"""Control loop for an arm whose driver has none of its own: sends set points to the driver at a fixed rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from robo_real.arm import ArmDriver, ArmTarget, SetPoint
from robo_real.deadline import TURN
from robo_real.motion_generator import MotionGenerator
from robo_rl.errors import RobotUnavailable


class Ticker:
    """Thread that reads an arm and sends its set points, from `start` to `close`. A `GuardedArm` has one."""

    def __init__(
        self,
        driver: ArmDriver,
        motion_generator: MotionGenerator,
        *,
        watches: Callable[[], bool],
        is_unheld: Callable[[], bool],
        hold: Callable[[], None],
        lost: Callable[[float], None],
    ) -> None:
        """Create the thread; `start` starts it.

        Args:
            driver: Driver of the arm.
            motion_generator: Source of the set points.
            watches: Returns True if the arm may move and must be measured.
            is_unheld: Returns True if the newest hold has failed. The hold is then tried again at each tick, until another
                motion begins.
            hold: Makes the arm stay; must raise nothing.
            lost: Called at each failed tick, with the time [s] since the first failure.
        """
        self._driver, self._motion_generator, self._watches = driver, motion_generator, watches
        self._is_unheld, self._hold, self._lost = is_unheld, hold, lost
        self.failure: RobotUnavailable | None = None
        """Error of the last tick, None if it succeeded"""
        self._lost_at = np.inf
        self._entered: float | None = None  # [s] monotonic time of the present tick
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="set points", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait for its end, unless a call of the driver hangs."""
        self._done.set()
        self._motion_generator.changed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(TURN)

    @property
    def seconds_in_driver(self) -> float:
        """Time [s] since the present tick began; 0 between two ticks. A large value means that the driver hangs."""
        entered = self._entered
        return 0.0 if entered is None else time.monotonic() - entered

    def _run(self) -> None:
        clock, period = self._driver.clock, self._motion_generator.period
        speed = getattr(clock, "speed", 1.0)
        while not self._done.is_set():
            due = clock.now() + period
            if self._watches():
                self._tick()
            else:
                self._clear_failure()
            if self._is_unheld() and not self._motion_generator.is_moving:
                self._hold()
            if self._motion_generator.is_moving:
                self._done.wait(max(due - clock.now(), 0.0) / speed)
            else:
                self._motion_generator.changed.wait(period / speed)  # a first command does not wait for the next tick
            self._motion_generator.changed.clear()

    def _tick(self) -> None:
        driver, self._entered = self._driver, time.monotonic()
        try:
            state = driver.read()
            self._send(self._motion_generator.tick(state, driver.clock.now()))
            self._clear_failure()
        except Exception as error:  # a third-party driver must not end the thread that watches its arm
            known = error if isinstance(error, RobotUnavailable) else None
            got = f"{type(error).__name__}: {error}".partition("\n")[0]
            self.failure = known or RobotUnavailable("The arm's driver failed.", got=got)
            self._lost_at = min(self._lost_at, driver.clock.now())
            self._lost(driver.clock.now() - self._lost_at)
        finally:
            self._entered = None

    def _clear_failure(self) -> None:
        self.failure, self._lost_at = None, np.inf

    def _send(self, point: SetPoint | None) -> None:
        if point is None:
            return
        if isinstance(point, ArmTarget):
            self._driver.move(point)
            if self._motion_generator.is_moving:
                return
        self._hold()  # also if the arm was stopped during `move`
