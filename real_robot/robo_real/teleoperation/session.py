"""Thread of a device: reads the device, reports its commands to the state of the operator, and opens it again after a loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import numpy as np

from robo_real.arm_spec import GRIP
from robo_real.console.human import HoldAction
from robo_real.console.operator_state import LABELS, OperatorState
from robo_real.teleoperation.motion import MotionCommand
from robo_real.teleoperation.teleoperator import Press, Teleoperator
from robo_rl.errors import RoboRLError, RobotError, printable
from robo_rl.spec.environment import ActionSpec
from robo_rl.types import Array

RETRY = 0.5
"""[s] between two attempts to open a device that was lost"""


class TeleoperatorSession:
    """Session in which a person commands the robot with a device, until `close`.

    The device is either the operator itself, or a further device of the operator who has the page open.
    """

    def __init__(
        self,
        device: Teleoperator,
        operator_state: OperatorState,
        hold_action: HoldAction,
        action: ActionSpec,
        *,
        stop: Callable[[str], None],
        rearm: Callable[[], None],
        notify: Callable[[str], None],
        is_operator: bool = False,
    ) -> None:
        """Open the device and start its thread.

        Args:
            device: The device.
            operator_state: State of the operator, to which commands and presses are reported.
            hold_action: Action that holds the arm; it knows the last command of the gripper.
            action: Spec of the robot's actions.
            stop: Stops the robot; its argument is the origin of the stop. Must raise nothing.
            rearm: Re-arms the robot; raises RobotError.
            notify: Shows a message to the operator.
            is_operator: True to make the device the operator; False if a page is the operator.

        Raises:
            TeleoperatorUnavailable: The device cannot be opened.
            InvalidSetting: The device cannot command the robot's actions.
        """
        self._device, self._state, self._hold_action, self._action = device, operator_state, hold_action, action
        self._motion = MotionCommand(device.settings, action)
        self._stop, self._rearm, self._notify, self._is_operator = stop, rearm, notify, is_operator
        self._name = ""
        self._grip: float | None = None  # commanded in this intervention
        self._done = threading.Event()
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="teleoperator", daemon=True)
        self._thread.start()
        opened.result()

    def close(self) -> None:
        """Close the device. Within an episode this is a loss of contact if the device is the operator."""
        self._done.set()
        self._thread.join()

    def _run(self, opened: Future[None]) -> None:
        try:
            self._open(opened)
            while not self._done.is_set():
                try:
                    self._take_readings()
                except Exception as error:  # a driver may raise anything: the arm must hold, and the thread go on
                    self._lose(error)
                    self._reopen()
        finally:
            self._state.release(self)
            self._device.close()

    def _open(self, opened: Future[None]) -> None:
        try:
            self._name = printable(self._device.connect(), 80)
        except BaseException as error:
            self._done.set()
            opened.set_exception(error)
            return
        self._join()
        opened.set_result(None)
        self._tell(f"{self._name}: ready")

    def _join(self) -> None:
        """Become the operator, if that was asked for and there is none; else a device beside the operator's page."""
        self._is_operator = self._is_operator and self._state.acquire(self)
        if not self._is_operator:
            self._state.attach(self)

    def _take_readings(self) -> None:
        while not self._done.is_set():
            reading = self._device.read()
            command = self._motion.of(reading, time.monotonic())
            self._grip = self._grip if command.held else None
            for press in reading.presses:
                self._press(press)
            is_known = self._grip is not None or GRIP not in self._action.names
            self._state.update(self, command.held, self._with_grip(command.action), self._state.episode if is_known else None)

    def _press(self, press: Press) -> None:
        if press == "stop":
            _in_thread(partial(self._request_stop, self._state.stop(self)))
        elif press == "start":
            self._state.start(self)
        elif press in LABELS:
            self._state.label(self, press)
        elif press == "rearm":
            _in_thread(partial(self._request_rearm, self._state.stops))
        else:
            newest = next((grip for grip in (self._grip, self._hold_action.grip) if grip is not None), 1.0)
            toggled = -1.0 if newest > 0 else 1.0
            self._grip = {"open_gripper": 1.0, "close_gripper": -1.0}.get(press, toggled)

    def _request_stop(self, by: str) -> None:
        try:
            self._stop(by)
        finally:
            self._state.confirm_stop()

    def _request_rearm(self, stops: int) -> None:
        try:
            self._rearm()
            self._state.rearm(self, stops)
            self._tell("re-armed")
        except RobotError as error:
            self._tell(" ".join(str(error).split()))

    def _with_grip(self, action: Array) -> Array:
        if self._grip is None:
            return action
        return np.where(np.array(self._action.names) == GRIP, np.float32(self._grip), action)

    def _lose(self, error: Exception) -> None:
        reason = str(error).partition("\n")[0] if isinstance(error, RoboRLError) else f"{type(error).__name__}: {error}"
        reason = printable(reason, 200).rstrip(".")
        why = f"{self._name} was lost: {reason}"
        if self._is_operator:
            self._state.release(self, why)
        else:
            self._state.lose(self, why)
        self._tell(f"{why}. It commands nothing until it is back and was released.")

    def _tell(self, message: str) -> None:
        with suppress(OSError):  # the terminal is gone, which must not end the thread
            self._notify(message)

    def _reopen(self) -> None:
        self._grip = None
        self._device.close()
        while not self._done.wait(RETRY):
            try:
                self._name = printable(self._device.connect(), 80)
                self._join()
                return self._tell(f"{self._name} is back")
            except Exception:  # not there yet, or the driver failed in another way
                self._device.close()


def _in_thread(request: Callable[[], None]) -> None:
    """Send a request to the robot in a thread, since it may take seconds, and stops must be handled meanwhile."""
    threading.Thread(target=request, name="request of a device", daemon=True).start()
