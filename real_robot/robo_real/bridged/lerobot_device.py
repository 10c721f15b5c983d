"""Device of LeRobot behind the bridge; runs in LeRobot's environment, so it imports nothing of ours."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

FAMILIES = {"robot": "robots", "teleoperator": "teleoperators"}


def open_device(about: Mapping[str, Any]) -> LeRobotDevice:
    """Return a connected device.

    Args:
        about: `kind` (robot or teleoperator), `config` of LeRobot, `modules` that register types of their own, and `path`,
            folders to find them in.
    """
    sys.path[:0] = about["path"]
    device = make_device(about["kind"], about["config"], about["modules"])
    device.connect(calibrate=False)  # calibration asks questions on a terminal
    if not device.is_calibrated:
        device.disconnect()
        raise RuntimeError("the device is not calibrated; run lerobot-calibrate with the same type and id first")
    return LeRobotDevice(device, is_robot=about["kind"] == "robot")


def make_device(kind: str, config: Mapping[str, Any], modules: list[str]) -> Any:
    """Return an unconnected device of a LeRobot config, such as {"type": "so101_follower", "port": "/dev/ttyACM0"}.

    modules: to import first, which register types of their own.
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


class LeRobotDevice:
    """Device of the bridge around a connected `Robot` or `Teleoperator` of LeRobot."""

    def __init__(self, device: Any, *, is_robot: bool) -> None:
        self._device, self._is_robot = device, is_robot
        self._read = device.get_observation if is_robot else device.get_action
        self.drive = device.send_action if is_robot else device.send_feedback
        self._values: Mapping[str, Any] = {}

    def features(self) -> Mapping[str, Any]:
        """Return `values`, name -> shape of what `read` returns ([] for a number), and `commands`, the names that can be sent.

        A robot returns observations and takes actions. A teleoperator returns actions and takes feedback.
        """
        read = self._device.observation_features if self._is_robot else _named(self._device.action_features)
        sent = _named(self._device.action_features if self._is_robot else self._device.feedback_features)
        shapes = {name: list(shape) if isinstance(shape, tuple) else [] for name, shape in read.items()}
        return {"values": shapes, "commands": list(sent)}

    def read(self) -> tuple[float, dict[str, Any], dict[str, tuple[float, Any]]]:
        """Read the device once.

        Returns:
            The monotonic time [s] before the reading, name -> number, and name -> (time [s], picture).
        """
        stamp = time.monotonic()
        self._values = self._read()
        pictures = {name: (stamp, value) for name, value in self._values.items() if np.ndim(value) == 3}
        return stamp, {name: value for name, value in self._values.items() if name not in pictures}, pictures

    def rest(self) -> None:
        """Send a robot to the place where it is."""
        if self._is_robot and self._values:
            features = self._device.action_features
            self.drive({name: float(self._values[name]) for name in features if name in self._values})

    def close(self) -> None:
        """Disconnect the device."""
        self._device.disconnect()


def _named(features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return features by name; some teleoperators of LeRobot describe them as one vector with names."""
    return dict.fromkeys(features["names"], float) if isinstance(features.get("names"), dict | list) else features
