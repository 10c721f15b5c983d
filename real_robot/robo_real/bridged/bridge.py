"""Bridge to one device; runs as a script in another interpreter, LeRobot's or that of ROS 2, so it imports nothing of ours.

    python bridge.py DESCRIPTOR        a connected socket with messages of multiprocessing.connection

A message is one line of JSON, then the bytes of its pictures. The first one comes from the other side and describes the
device; the answer is its features, or an error. Then the device is read at a fixed rate and driven by the newest command.
When the other side ends, a robot is left where it is, and disconnected.

The description names a Python file with `open_device(about)`, which returns a connected device with the methods of `Device`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

BROKEN = 0.5
"""[s] of failed readings after which the device counts as lost: a single one on a serial bus may fail"""


Reading = tuple[float, Mapping[str, float], Mapping[str, tuple[float, Any]]]
"""Stamp [s] of time.monotonic(); name -> number; name -> stamp and picture (H, W, 3) RGB, only new ones"""


class Device(Protocol):
    """Robot, teleoperation device or arm that is connected in the bridge's process."""

    def features(self) -> Mapping[str, Any]:
        """Return `values`, name -> shape of what is read, () for a number; and `commands`, the names that can be sent."""

    def read(self) -> Reading | None:
        """Return what is new, None if nothing is; raises if the device fails."""

    def drive(self, command: Mapping[str, float]) -> None:
        """Send a command and return at once."""

    def rest(self) -> None:
        """Leave a robot where it is: the other side has ended."""

    def close(self) -> None:
        """Disconnect."""


class Inbox:
    """Newest command of the other side; older ones are dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._changed, self._newest = connection, threading.Event(), None
        self.is_closed = False
        threading.Thread(target=self._receive, daemon=True).start()

    def take(self, timeout: float) -> dict[str, Any] | None:
        """Return the newest command that was not taken yet, waiting for one up to `timeout` [s]."""
        self._changed.wait(max(timeout, 0.0))
        self._changed.clear()
        newest, self._newest = self._newest, None
        return newest

    def _receive(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._newest = json.loads(self._connection.recv_bytes())
                self._changed.set()
        self.is_closed = True
        self._changed.set()


def serve(connection: Connection) -> None:
    """Connect the device, then read and drive it until the other side ends."""
    about = json.loads(connection.recv_bytes())
    device: Device = _module(about["device"]).open_device(about)
    try:
        send(connection, {"features": device.features()})
        inbox, period, fine = Inbox(connection), 1.0 / about["rate"], time.monotonic()
        due = fine
        while not inbox.is_closed:
            command = inbox.take(due - time.monotonic())
            try:
                if command is not None:
                    device.drive(command)
                if time.monotonic() >= due:
                    due = time.monotonic() + period
                    reading = device.read()
                    if reading is not None:
                        send_reading(connection, reading)
                fine = time.monotonic()
            except BrokenPipeError:
                break
            except Exception:
                if time.monotonic() - fine > BROKEN:
                    raise
                due = time.monotonic() + period
        device.rest()
    finally:
        device.close()


def send_reading(connection: Connection, reading: Reading) -> None:
    """Send numbers and pictures of one reading."""
    stamp, values, pictures = reading
    numbers = {name: float(value) for name, value in values.items()}
    shapes = {name: [taken, *np.shape(picture)] for name, (taken, picture) in pictures.items()}
    content = b"".join(np.ascontiguousarray(picture).astype(np.uint8).tobytes() for _, picture in pictures.values())
    send(connection, {"stamp": stamp, "values": numbers, "pictures": shapes}, content)


def send(connection: Connection, head: Mapping[str, Any], content: bytes = b"") -> None:
    """Send one message: `head` as a line of JSON, then the bytes of `content`."""
    connection.send_bytes(json.dumps(head).encode() + b"\n" + content)


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("bridged_device", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serve one device over the socket whose file descriptor is the last argument of the command line.

    The name of the device comes in the first message. An error is sent to the other side as its last message, then raised.
    """
    sys.path.pop(0)  # the folder of this script, whose modules are none of the other side's
    connection = Connection(int(sys.argv[-1]))
    try:
        serve(connection)
    except Exception as error:
        with contextlib.suppress(OSError):
            send(connection, {"error": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    main()
