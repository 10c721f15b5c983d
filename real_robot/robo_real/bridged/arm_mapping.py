"""Mapping of the motors or joints of a device to the joints of a model of the arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robo_real.arm import Array
from robo_real.bridged.device_process import DeviceProcess
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.kinematics import Hand, Kinematics
from robo_rl.settings import settings_as


@dataclass(frozen=True)
class MotorMapping:
    """Mapping of one motor to one joint of the model: joint angle = scale x (motor position - zero)."""

    feature: str
    """the device's name of the motor's position, such as shoulder_pan.pos of LeRobot or panda_joint1 of ROS"""
    scale: float
    """[rad] joint angle per unit of the motor position; negative if the motor turns the other way"""
    zero: float = 0.0
    """motor position at which the model's joint is at 0, in the motor's unit"""


@dataclass(frozen=True)
class GripperMapping:
    """Mapping of one motor to the opening of the gripper."""

    feature: str
    """the device's name of the motor's position, such as gripper.pos of LeRobot"""
    closed: float
    """motor position of the closed gripper, in the motor's unit"""
    open: float
    """motor position of the open gripper, in the motor's unit"""
    width: float = 0.08
    """Distance [m] between the fingers of the fully open gripper."""


@dataclass(frozen=True, kw_only=True)
class ArmFile:
    """Part of a YAML file that maps a device to a model of the arm."""

    model: str
    """path of the MJCF or URDF model, relative to the YAML file; the frame of its world is that of the base"""
    hand: str | Mapping[str, Any]
    """site or body of the model whose z axis points out of the hand; or settings of such a frame (robo_rl.kinematics.Hand)"""
    joints: Mapping[str, Mapping[str, Any]] | tuple[str, ...]
    """joint of the model -> settings of its MotorMapping, in the order of the arm's joints; or only the names, if the device
    has the same names"""
    gripper: Mapping[str, Any] | None = None
    """settings of the GripperMapping; None for an arm without a gripper"""
    rate: float = 50.0
    """[1/s] rate at which the device is read, 10 to 1000; the device's bus and cameras may allow less"""


class ArmMapping:
    """Conversion between the motor positions of a device and the joint positions of a model."""

    def __init__(self, file: ArmFile, source: Path, *, scale: float = math.pi / 180) -> None:
        """Load the model.

        Args:
            file: Content of the YAML file.
            source: Path of the YAML file, to which other paths are relative.
            scale: [rad] Joint angle per unit of the motor position, for joints that set no scale; by default for degrees.

        Raises:
            InvalidSetting: A number is impossible, or the model cannot be loaded.
            UnknownName: A setting is unknown, or the model has no such joint or hand.
        """
        self._file = file
        joints = file.joints if isinstance(file.joints, Mapping) else {name: {"feature": name} for name in file.joints}
        given = [{"scale": scale, **motor} for motor in joints.values()]
        self.motors = [settings_as(MotorMapping, motor, source=f"{source}: joints") for motor in given]
        self.gripper: GripperMapping | None = None
        if file.gripper is not None:
            self.gripper = settings_as(GripperMapping, file.gripper, source=f"{source}: gripper")
        self._zero = np.array([motor.zero for motor in self.motors])
        self._scale = np.array([motor.scale for motor in self.motors])
        self._refuse_absurd()
        hand = file.hand if isinstance(file.hand, str) else settings_as(Hand, file.hand, source=f"{source}: hand")
        self.kinematics = Kinematics(source.parent / file.model, [*joints], hand)

    @property
    def features(self) -> list[str]:
        """The device's names of the motors' positions, that of the gripper last."""
        return [motor.feature for motor in self.motors] + ([self.gripper.feature] if self.gripper else [])

    def joints(self, values: Mapping[str, float]) -> Array:
        """Return joint positions (J,) [rad]; NaN for a motor that is missing in `values` (name -> motor position)."""
        raw = np.array([values.get(motor.feature, np.nan) for motor in self.motors])
        found: Array = self._scale * (raw - self._zero)
        return found

    def opened(self, values: Mapping[str, float]) -> float:
        """Return how far the gripper is open: 0 for closed, 1 for open, less or more beyond its range; 0 without a gripper.

        values: name of a motor -> its position, in the motor's unit.
        """
        gripper = self.gripper
        return (values[gripper.feature] - gripper.closed) / (gripper.open - gripper.closed) if gripper else 0.0

    def commands(self, joints: Array, opened: float) -> dict[str, float]:
        """Return name -> motor position for joint positions (J,) [rad] and an opening as a share of the gripper's width."""
        features = [motor.feature for motor in self.motors]
        values: dict[str, float] = dict(zip(features, (joints / self._scale + self._zero).tolist(), strict=True))
        if self.gripper is not None:
            values[self.gripper.feature] = self.gripper.closed + opened * (self.gripper.open - self.gripper.closed)
        return values

    def require_read(self, process: DeviceProcess) -> None:
        """Raise UnknownName if a started device does not report the position of a mapped motor."""
        for feature in self.features:
            if process.features.get(feature) != ():
                numbers = [name for name, shape in process.features.items() if shape == ()]
                raise UnknownName("motor of the device", feature, numbers)

    def _refuse_absurd(self) -> None:
        gripper, rate = self.gripper, self._file.rate
        if not self.motors or not np.isfinite([*self._scale, *self._zero]).all() or not self._scale.all():
            raise InvalidSetting("A joint has an impossible scale or zero.", got=self.motors, allowed="finite, scale not 0")
        if not 10 <= rate <= 1000:
            raise InvalidSetting("The rate of readings is out of range.", got=rate, allowed="10 to 1000 [1/s]")
        travel = gripper.open - gripper.closed if gripper else 1.0
        if gripper and not (math.isfinite(travel) and travel != 0 and 0 < gripper.width < math.inf):
            raise InvalidSetting("The gripper has impossible numbers.", got=gripper, allowed="open != closed, width above 0")
