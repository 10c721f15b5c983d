"""Process of a LeRobot device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robo_real.bridged.arm_mapping import ArmFile
from robo_real.bridged.device_process import DeviceProcess

DEVICE = Path(__file__).with_name("lerobot_device.py")


@dataclass(frozen=True, kw_only=True)
class LeRobotFile(ArmFile):
    """Part of a YAML file that maps a device of LeRobot to a model of the arm."""

    modules: tuple[str, ...] = ()
    """modules that register devices of your own, imported in LeRobot's environment"""
    path: tuple[str, ...] = ()
    """folders of these modules, relative to the file"""


def lerobot_process(
    python: str,
    kind: Literal["robot", "teleoperator"],
    config: Mapping[str, Any],
    file: LeRobotFile,
    folder: Path = Path(),
) -> DeviceProcess:
    """Return the process, not started yet, in which a `Robot` or `Teleoperator` of LeRobot runs.

    Args:
        python: Interpreter that can import lerobot.
        kind: Whether the device is a robot or a teleoperator.
        config: LeRobot's config of the device, with its key `type`.
        file: Rate of the readings, and modules that define device types of your own.
        folder: Folder to which `file.path` is relative.
    """
    path = [str((folder / part).resolve()) for part in file.path]
    about = {"kind": kind, "config": dict(config), "rate": file.rate, "modules": [*file.modules], "path": path}
    name = f"The LeRobot {kind} {config.get('type')!r}"
    return DeviceProcess([python], DEVICE, about, name=name, fix=f"is it plugged in, and can {python} import lerobot?")
