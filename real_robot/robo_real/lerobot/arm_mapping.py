"""Motors of a LeRobot device as joints of a model of the arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robo_real.arm import Array
from robo_real.lerobot.device_process import DeviceProcess
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.kinematics import Hand, Kinematics
from robo_rl.settings import settings_as


@dataclass(frozen=True)
class MotorMapping:
    """Motor of LeRobot to joint of the model: angle = scale x (reading - zero)."""

    feature: str
    """LeRobot's name, such as shoulder_pan.pos"""
    scale: float = math.pi / 180
    """[rad] per unit of the reading, by default of degrees; negative if the motor turns the other way"""
    zero: float = 0.0
    """reading at which the model's joint is at 0"""


@dataclass(frozen=True)
class GripperMapping:
    """Motor of LeRobot to opening of the gripper."""

    feature: str
    """LeRobot's name, such as gripper.pos"""
    closed: float
    """reading of the closed gripper"""
    open: float
    """reading of the open gripper"""
    width: float = 0.08
    """[m] between the fingers of the open gripper"""


@dataclass(frozen=True, kw_only=True)
class ArmFile:
    """Part of a YAML file that maps a device to a model of the arm."""

    model: str
    """MJCF or URDF of the arm, relative to the file; its world is the base"""
    hand: str | Mapping[str, Any]
    """site or body of the model, its z axis pointing out of the hand; or such a frame, as robo_rl.kinematics.Hand"""
    joints: Mapping[str, Mapping[str, Any]]
    """joint of the model -> MotorMapping, in order"""
    gripper: Mapping[str, Any] | None = None
    """GripperMapping; None without a gripper"""
    rate: float = 50.0
    """[1/s] readings; as many as the device's bus and cameras allow"""
    modules: tuple[str, ...] = ()
    """modules that register devices of your own, imported in LeRobot's environment"""
    path: tuple[str, ...] = ()
    """folders of these modules, relative to the file"""


class ArmMapping:
    """Conversion between readings of motors and joint positions of a model."""

    def __init__(self, file: ArmFile, source: Path) -> None:
        """source: path of the file. Raises InvalidSetting or UnknownName."""
        self._file, self._folder = file, source.parent
        self.motors = [settings_as(MotorMapping, motor, source=f"{source}: joints") for motor in file.joints.values()]
        self.gripper: GripperMapping | None = None
        if file.gripper is not None:
            self.gripper = settings_as(GripperMapping, file.gripper, source=f"{source}: gripper")
        self._zero = np.array([motor.zero for motor in self.motors])
        self._scale = np.array([motor.scale for motor in self.motors])
        self._refuse_absurd()
        hand = file.hand if isinstance(file.hand, str) else settings_as(Hand, file.hand, source=f"{source}: hand")
        self.kinematics = Kinematics(self._folder / file.model, [*file.joints], hand)

    @property
    def features(self) -> list[str]:
        """LeRobot's names of the motors, the gripper's last."""
        return [motor.feature for motor in self.motors] + ([self.gripper.feature] if self.gripper else [])

    def process(self, python: str, kind: Literal["robot", "teleoperator"], config: Mapping[str, Any]) -> DeviceProcess:
        """Return the process of the device, not started. config: of LeRobot."""
        path = [str((self._folder / part).resolve()) for part in self._file.path]
        return DeviceProcess(python, kind, config, rate=self._file.rate, modules=self._file.modules, path=path)

    def joints(self, values: Mapping[str, float]) -> Array:
        """Return joint positions (J,) [rad] of readings; NaN for a missing one."""
        raw = np.array([values.get(motor.feature, np.nan) for motor in self.motors])
        found: Array = self._scale * (raw - self._zero)
        return found

    def opened(self, values: Mapping[str, float]) -> float:
        """Return the opening of the gripper as a share of its width; 0 without a gripper."""
        gripper = self.gripper
        return (values[gripper.feature] - gripper.closed) / (gripper.open - gripper.closed) if gripper else 0.0

    def commands(self, joints: Array, opened: float) -> dict[str, float]:
        """Return the command of joint positions (J,) [rad] and a share of the gripper's width."""
        features = [motor.feature for motor in self.motors]
        values: dict[str, float] = dict(zip(features, (joints / self._scale + self._zero).tolist(), strict=True))
        if self.gripper is not None:
            values[self.gripper.feature] = self.gripper.closed + opened * (self.gripper.open - self.gripper.closed)
        return values

    def require_read(self, process: DeviceProcess) -> None:
        """Raise UnknownName if a started device reads no motor of a name."""
        for feature in self.features:
            if process.features.get(feature) != ():
                numbers = [name for name, shape in process.features.items() if shape == ()]
                raise UnknownName("motor of the LeRobot device", feature, numbers)

    def _refuse_absurd(self) -> None:
        gripper, rate = self.gripper, self._file.rate
        if not self.motors or not np.isfinite([*self._scale, *self._zero]).all() or not self._scale.all():
            raise InvalidSetting("A joint has an impossible scale or zero.", got=self.motors, allowed="finite, scale not 0")
        if not 10 <= rate <= 1000:
            raise InvalidSetting("The rate of readings is out of range.", got=rate, allowed="10 to 1000 [1/s]")
        travel = gripper.open - gripper.closed if gripper else 1.0
        if gripper and not (math.isfinite(travel) and travel != 0 and 0 < gripper.width < math.inf):
            raise InvalidSetting("The gripper has impossible numbers.", got=gripper, allowed="open != closed, width above 0")
