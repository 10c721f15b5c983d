"""Bridge to one LeRobot device. It runs as a script in LeRobot's environment, so it must not import packages of robo_rl.

    python bridge.py DESCRIPTOR        a connected socket with messages of multiprocessing.connection

A message is one line of JSON, then the bytes of its pictures. The other side sends the first message, which describes the
device. The answer has the features of the device, or an error. Then the device is read at a fixed rate and driven by the newest
command. When the other side ends, a robot is commanded to its last measured position, and disconnected.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

BROKEN = 0.5
"""[s] of failed readings after which the device counts as lost, since a single reading on a serial bus may fail"""
FAMILIES = {"robot": "robots", "teleoperator": "teleoperators"}


def make_device(kind: str, config: Mapping[str, Any], modules: list[str]) -> Any:
    """Return the device of a LeRobot config; it is not connected yet.

    Args:
        kind: "robot" or "teleoperator".
        config: LeRobot's config, such as {"type": "so101_follower", "port": "/dev/ttyACM0"}.
        modules: Modules to import first, which register devices of your own.

    Raises:
        ValueError: The type of the config is unknown.
    """
    family = importlib.import_module(f"lerobot.{FAMILIES[kind]}")
    for package in ("lerobot.cameras", family.__name__):
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
            with contextlib.suppress(ImportError):  # devices whose own packages are not installed
                importlib.import_module(found.name)
    importlib.import_module("lerobot.utils.import_utils").register_third_party_plugins()
    for name in modules:
        importlib.import_module(name)
    base = family.RobotConfig if kind == "robot" else family.TeleoperatorConfig
    known = sorted(base.get_known_choices())
    if config.get("type") not in known:
        raise ValueError(f"unknown type {config.get('type')!r}; known: {', '.join(known)}")
    decoded = importlib.import_module("draccus").decode(base, dict(config))
    make = family.make_robot_from_config if kind == "robot" else family.make_teleoperator_from_config
    return make(decoded)


class Inbox:
    """Newest command of the other side; older ones are dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._changed, self._newest = connection, threading.Event(), None
        self.is_closed = False
        threading.Thread(target=self._receive, daemon=True).start()

    def take(self, timeout: float) -> dict[str, Any] | None:
        """Wait for a command, for at most `timeout` [s]; return the newest that was not taken yet, None without one."""
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
    sys.path[:0] = about["path"]
    device = make_device(about["kind"], about["config"], about["modules"])
    device.connect(calibrate=False)  # calibration asks questions on a terminal
    try:
        if not device.is_calibrated:
            raise RuntimeError("the device is not calibrated; run lerobot-calibrate with the same type and id first")
        is_robot = about["kind"] == "robot"
        read = device.get_observation if is_robot else device.get_action
        drive = device.send_action if is_robot else device.send_feedback
        send(connection, {"features": {"values": _features(device, is_robot), "commands": _commands(device, is_robot)}})
        inbox, period, fine = Inbox(connection), 1.0 / about["rate"], time.monotonic()
        due, values = fine, {}
        while not inbox.is_closed:
            command = inbox.take(due - time.monotonic())
            try:
                if command is not None:
                    drive(command)
                if time.monotonic() >= due:
                    stamp, due = time.monotonic(), time.monotonic() + period
                    values = read()
                    send_reading(connection, stamp, values)
                fine = time.monotonic()
            except BrokenPipeError:
                break
            except Exception:
                if time.monotonic() - fine > BROKEN:
                    raise
                due = time.monotonic() + period
        if is_robot and values:
            drive({name: float(values[name]) for name in device.action_features if name in values})
    finally:
        device.disconnect()


def send_reading(connection: Connection, stamp: float, values: Mapping[str, Any]) -> None:
    """Send the numbers and pictures of one reading; stamp: [s] monotonic time before the device was read."""
    pictures = {name: np.ascontiguousarray(value) for name, value in values.items() if np.ndim(value) == 3}
    numbers = {name: float(value) for name, value in values.items() if name not in pictures}
    head = {"stamp": stamp, "values": numbers, "pictures": {name: value.shape for name, value in pictures.items()}}
    send(connection, head, b"".join(value.astype(np.uint8).tobytes() for value in pictures.values()))


def send(connection: Connection, head: Mapping[str, Any], content: bytes = b"") -> None:
    """Send one message: a line of JSON, then the bytes of pictures."""
    connection.send_bytes(json.dumps(head).encode() + b"\n" + content)


def _features(device: Any, is_robot: bool) -> dict[str, Any]:
    """Return name -> shape of each reading; () for a number."""
    found = device.observation_features if is_robot else _named(device.action_features)
    return {name: list(shape) if isinstance(shape, tuple) else [] for name, shape in found.items()}


def _commands(device: Any, is_robot: bool) -> list[str]:
    return list(_named(device.action_features if is_robot else device.feedback_features))


def _named(features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return features by name; some teleoperators of LeRobot describe them as one vector with names."""
    return dict.fromkeys(features["names"], float) if isinstance(features.get("names"), dict | list) else features


def main() -> None:
    """Serve one device; an error is sent to the other side as its last message."""
    sys.path.pop(0)  # the folder of this script, whose modules are none of LeRobot's
    connection = Connection(int(sys.argv[-1]))
    try:
        serve(connection)
    except Exception as error:
        with contextlib.suppress(OSError):
            send(connection, {"error": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    main()
