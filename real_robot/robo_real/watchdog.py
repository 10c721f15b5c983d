"""Watchdog of an arm: holds the arm, and then stops it, if no more commands come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np

from robo_real.arm import ArmDriver
from robo_real.audit_log import AuditLog
from robo_real.deadline import DRIVER_HANGS, HANGS, TURN, DriverHangs, within
from robo_real.guard import Guard, Mode
from robo_real.limits import Limits
from robo_real.motion_generator import MotionGenerator

PERIOD = 0.01
"""[s] of wall time between two checks."""


class WatchedArm(Protocol):
    """Parts of a guarded arm that its watchdog needs."""

    driver: ArmDriver
    guard: Guard
    limits: Limits
    log: AuditLog
    motion_generator: MotionGenerator

    def pause(self) -> None:
        """Hold the arm until the next command."""

    def stop(self, reason: str = "stop") -> None:
        """Stop the arm until a person re-arms."""


class Watchdog:
    """Thread that holds, and then stops, an arm to which no new commands come.

    It runs in the process of the driver, so that it goes on if the process of the policy crashes.
    """

    def __init__(self, arm: WatchedArm, hold: Callable[[], None], hanging: Callable[[], float] = lambda: 0.0) -> None:
        """Create the watchdog; `start` starts its thread.

        Args:
            arm: Arm to be watched.
            hold: Makes the arm stay; must neither raise nor hang.
            hanging: Returns the time [s] for which a call of the driver has not returned; 0 if there is none.
        """
        self._arm, self._hold, self._hanging = arm, hold, hanging
        self.commanded = -np.inf
        """[s] time of the last motion command, of the driver's clock"""
        self.is_holding = True
        self.pauses = False
        """True if the client of the newest command may pause; its arm is then paused after a silence instead of stopped."""
        self.closing = threading.Event()
        """Set as soon as the arm is being closed."""
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread unless it runs."""
        self.closing.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self.closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(TURN)
            self._thread = None

    def check(self) -> None:
        """Hold or stop the arm if the last command is too old."""
        arm = self._arm
        silent = arm.driver.clock.now() - self.commanded
        if self.pauses:
            self._check_pause(silent)
        elif silent > arm.limits.stop_after:
            arm.stop("watchdog")
        elif silent > arm.limits.hold_after and not self.is_holding:
            arm.log.add("held", silent=silent)
            self._hold()

    def _run(self) -> None:
        while not self.closing.wait(PERIOD):
            if self._arm.guard.is_ready and self._hanging() > self._arm.limits.stop_after:
                self._arm.guard.fault(DRIVER_HANGS)  # before the hold, which may hang as well
                self._hold()
            if self._arm.guard.mode is Mode.RUNNING:
                self.check()

    def _check_pause(self, silent: float) -> None:
        """Pause an arm that has arrived, once its client has been silent for `stop_after`; silent: [s] of silence so far."""
        motion = self._arm.motion_generator
        if silent <= self._arm.limits.stop_after or motion.is_moving_joints:
            return
        try:
            if motion.is_moving and not motion.arrived(within(HANGS, self._arm.driver.read, "read")):
                return  # the motion has a time limit
        except DriverHangs:
            self._arm.guard.fault(DRIVER_HANGS)
        except Exception:  # a driver that fails must not end the watchdog: the arm is paused then
            self._arm.log.add("read_failed")
        self._arm.pause()
