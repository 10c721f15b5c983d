"""Device in a process of its own, with another Python interpreter: its newest reading, and commands to it."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robo_real.cameras import Frame
from robo_rl.errors import RobotUnavailable, printable
from robo_rl.system.supervised_process import SupervisedProcess, ending

BRIDGE = Path(__file__).with_name("bridge.py")
STARTUP = 60.0
"""[s] longest time until a device is connected; the import of its packages takes most of this time"""
CLOSING = 3.0
"""[s] longest time for a device to disconnect"""


@dataclass(frozen=True)
class Reading:
    """One reading of a device: the positions of its motors, and the pictures of its cameras."""

    stamp: float
    """[s] time by the machine's monotonic clock, no later than the measurement"""
    values: Mapping[str, float]
    """Name of a motor or another number of the device -> its measured value, in the unit of the device."""
    pictures: Mapping[str, Frame]
    """Name of a camera of the device -> its newest picture, whose time stamp is of the same clock as `stamp`."""
    number: int
    """count of the readings, from 1"""


class DeviceProcess:
    """Handle of a process that drives one device, with another Python interpreter.

    After `start` no call waits for the device, except `wait_for_reading`.
    """

    def __init__(self, command: Sequence[str], device: Path, about: Mapping[str, Any], *, name: str, fix: str) -> None:
        """Create the handle; `start` starts the process.

        Args:
            command: Command that runs a Python script, such as the interpreter.
            device: Python file with the function `open_device`, which the process calls.
            about: Argument of `open_device`; its entry `rate` [1/s] is the rate at which the device is read.
            name: Name of the device, for errors.
            fix: Advice for an error if the device cannot be reached.
        """
        self._command, self._name, self._fix = [*command], name, fix
        self._about = json.dumps({**about, "device": str(device)}).encode()
        self._process: SupervisedProcess | None = None
        self._reading: Reading | None = None
        self._error = ""
        self._changed = threading.Event()
        self.features: Mapping[str, tuple[int, ...]] = {}
        """name -> shape of each value of a reading, () for a number; empty before `start`"""
        self.commands: tuple[str, ...] = ()
        """names of the values of a command; empty before `start`"""

    def start(self) -> None:
        """Start the process and wait for the first reading; raises RobotUnavailable with the error of the device."""
        self._reading, self._error = None, ""
        self._changed.clear()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # of our packages
        log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the process)
        try:
            self._process = SupervisedProcess(
                [*self._command, str(BRIDGE)], on_message=self._receive, log=log, environment=environment
            )
        except OSError as error:
            log.close()
            raise self._unavailable("does not start", f"{self._command[0]}: {error.strerror}") from None
        self._process.send(self._about)
        end = time.monotonic() + STARTUP
        while self._reading is None and not self._error and self._changed.wait(max(end - time.monotonic(), 0.0)):
            self._changed.clear()
        if self._reading is None:
            got = self._failure()
            self.close()
            raise self._unavailable("does not connect", got)

    @property
    def is_started(self) -> bool:
        """True from `start` to `close`."""
        return self._process is not None

    def newest(self, most_age: float) -> Reading:
        """Return the newest reading; raises RobotUnavailable if it is older than `most_age` [s], or the process has ended."""
        process, reading = self._process, self._reading
        if process is None or reading is None:
            raise RobotUnavailable(f"{self._name} is not connected.", fix="connect() first")
        if self._error:
            raise self._unavailable("is lost", self._failure())
        age = time.monotonic() - reading.stamp
        if age > most_age:
            raise self._unavailable("is silent", f"newest reading {age:.2f} s old", f"{most_age} s")
        return reading

    def wait_for_reading(self, timeout: float) -> None:
        """Block until there is a new reading, for at most `timeout` [s]. Only one thread may wait."""
        self._changed.wait(timeout)
        self._changed.clear()

    def send(self, values: Mapping[str, float]) -> None:
        """Send a command, name -> number, and return at once. A command to a process that has ended is lost."""
        if self._process is not None:
            self._process.send(json.dumps(dict(values)).encode())

    def close(self) -> None:
        """End the process, which disconnects the device; a process that hangs is killed. Closing twice is no error."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(CLOSING)

    def _receive(self, message: bytes | None) -> None:
        if message is None:
            self._error = self._error or "its process ended"
        else:
            line, _, content = message.partition(b"\n")
            head = json.loads(line)
            if "error" in head:
                self._error = head["error"]
            elif "features" in head:
                self.features = {name: tuple(shape) for name, shape in head["features"]["values"].items()}
                self.commands = tuple(head["features"]["commands"])
            else:
                self._reading = self._read(head, content)
        self._changed.set()

    def _read(self, head: Mapping[str, Any], content: bytes) -> Reading:
        before, start = self._reading, 0
        number = 1 if before is None else before.number + 1
        pictures = {} if before is None else dict(before.pictures)
        for name, (stamp, *shape) in head["pictures"].items():
            size = int(np.prod(shape))
            pixels = np.frombuffer(content, np.uint8, size, start).reshape(shape)
            pictures[name] = Frame(pixels, float(stamp), number)
            start += size
        return Reading(float(head["stamp"]), head["values"], pictures, number)

    def _failure(self) -> str:
        """Return the device's own error; without one, how its process ended and the last line of its output."""
        assert self._process is not None
        if self._error and self._error != "its process ended":
            return self._error
        status = self._process.wait(0.2)
        return f"{ending(status)}: {self._process.output().splitlines()[-1:] or ['no output']}"

    def _unavailable(self, predicate: str, got: str, allowed: str | None = None) -> RobotUnavailable:
        return RobotUnavailable(f"{self._name} {predicate}.", got=printable(got), allowed=allowed, fix=self._fix)
