"""Leader arm: a teleoperator of LeRobot, such as the SO-101 leader, whose hand the robot's hand follows.

The velocity of the leader's hand commands the velocity of the robot's hand. So both arms need neither the same joints nor the
same posture: you may let the leader go, and begin again in any posture. A model of the leader converts its motor positions to
the pose of its hand, as for a LeRobot robot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from robo_real.arm import Array
from robo_real.bridged.arm_mapping import ArmMapping
from robo_real.bridged.device_process import Reading as DeviceReading
from robo_real.bridged.lerobot_process import LeRobotFile, lerobot_process
from robo_real.rotations import Quaternion, between
from robo_real.teleoperation.teleoperator import POLL, MotionSettings, Press, Reading, Teleoperator
from robo_rl.errors import InvalidSetting, RoboRLError, RobotUnavailable, TeleoperatorUnavailable, require_allowed
from robo_rl.settings import settings_as
from robo_rl.system.plain_files import read_yaml

SILENT = 0.1
"""[s] without a new reading of the motors after which the leader counts as lost"""
CLOSES, OPENS = 0.4, 0.6
"""share of the trigger's travel below which the gripper is closed; share above which it is opened"""


@dataclass(frozen=True)
class LeaderArmOptions(MotionSettings):
    """Settings of a leader arm."""

    config: Path | None = None
    """required: YAML file that maps the leader's motors to a model of the leader"""
    python: str = "python"
    """Python interpreter of the environment in which lerobot is installed"""
    linear_speed: float | None = 0.25
    """[m/s] largest speed of the robot's hand; the robot falls behind a leader that is faster"""
    angular_speed: float | None = 2.0
    """[rad/s] largest rotation speed of the robot's hand"""
    ratio: float = 1.0
    """motion of the robot's hand per motion of the leader's hand, 0.05 to 5"""
    dead_band: float = 0.02
    """share of the largest speed that counts as rest, 0 to 0.9; the command grows from zero at its edge"""
    window: float = 0.06
    """[s] time over which the leader's velocity is measured, 0.02 to 0.5"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self,
            {
                "ratio": (0.05 <= self.ratio <= 5.0, "0.05 to 5"),
                "window": (0.02 <= self.window <= 0.5, "0.02 to 0.5 s"),
                "linear_speed": (self.linear_speed is not None, "a number [m/s]"),
                "angular_speed": (self.angular_speed is not None, "a number [rad/s]"),
            },
        )


@dataclass(frozen=True, kw_only=True)
class LeaderConfig(LeRobotFile):
    """Content of the YAML file of `LeaderArmOptions.config`."""

    teleoperator: Mapping[str, Any]
    """LeRobot's config of the teleoperator, with its `type`"""


class LeaderArm(Teleoperator):
    """Leader arm; its trigger closes and opens the gripper."""

    options = LeaderArmOptions
    keys = "move the leader arm to drive; its trigger closes and opens the gripper"

    def __init__(self, options: LeaderArmOptions | None = None) -> None:
        """Read the YAML file, if there is one. Raises InvalidSetting or UnknownName if it contradicts itself."""
        super().__init__(options)
        self._mapping: ArmMapping | None = None
        if self.settings.config is not None:
            path = self.settings.config
            config: LeaderConfig = settings_as(LeaderConfig, read_yaml(path), source=str(path))
            self._mapping = ArmMapping(config, path)
            self._process = lerobot_process(self.settings.python, "teleoperator", config.teleoperator, config, path.parent)
            self._name = f"leader arm {config.teleoperator.get('type')}"
        self._poses: deque[tuple[float, Array, Quaternion]] = deque()
        self._is_open: bool | None = None  # None before the first reading

    @override
    def connect(self) -> str:
        """Start LeRobot's process, which takes seconds, and return the name of the leader.

        Raises:
            InvalidSetting: There is no YAML file.
            TeleoperatorUnavailable: The leader does not connect, or lacks a motor of the file.
        """
        if self._mapping is None:
            raise InvalidSetting(
                "A leader arm needs a file that maps it to a model.",
                allowed="a YAML file",
                fix="--teleoperator.settings.config FILE; docs/robots/lerobot.md has one to start from",
            )
        self._poses.clear()
        self._is_open = None
        try:
            self._process.newest(SILENT)
        except RobotUnavailable:  # else it was silent for a moment only, and starting it again takes seconds
            self._process.close()
        try:
            if not self._process.is_started:
                self._process.start()
            self._mapping.require_read(self._process)
        except RoboRLError as error:
            self._process.close()
            raise TeleoperatorUnavailable("The leader arm cannot be opened.", got=error) from None
        return self._name

    @override
    def read(self) -> Reading:
        try:
            if self._mapping is None:
                raise RobotUnavailable("The leader arm is not connected.")
            self._process.wait_for_reading(POLL)
            found = self._process.newest(SILENT)
        except RobotUnavailable as error:
            raise TeleoperatorUnavailable("The leader arm does not answer.", got=error, fix="plug it in") from None
        return Reading(self._deflections(self._mapping, found), None, self._presses(self._mapping, found))

    @override
    def close(self) -> None:
        if self._mapping is not None:
            self._process.close()

    def _deflections(self, mapping: ArmMapping, found: DeviceReading) -> dict[str, float]:
        """Return axis -> velocity of the leader's hand, times `ratio`, as a share of the largest speed, in [-1, 1]."""
        position, direction, _ = mapping.kinematics.hand(mapping.joints(found.values))
        if not self._poses or found.stamp > self._poses[-1][0]:
            self._poses.append((found.stamp, position, direction))
        while found.stamp - self._poses[0][0] > self.settings.window:
            self._poses.popleft()
        since, first, turned_from = self._poses[0]
        duration = found.stamp - since
        if duration <= 0:
            return {}
        rates = self.settings.ratio / duration
        moved = rates * (position - first) / self.settings.linear_speed
        turned = rates * np.array(between(turned_from, direction)) / self.settings.angular_speed
        axes = dict(zip(("x", "y", "z", "roll", "pitch", "yaw"), (*moved.tolist(), *turned.tolist()), strict=True))
        return {name: value if math.isnan(value) else round(max(-1.0, min(1.0, value)), 3) for name, value in axes.items()}

    def _presses(self, mapping: ArmMapping, found: DeviceReading) -> tuple[Press, ...]:
        if mapping.gripper is None:
            return ()
        opened, was_open = mapping.opened(found.values), self._is_open
        self._is_open = opened > (CLOSES if was_open else OPENS)
        if was_open is None or was_open == self._is_open:
            return ()
        return ("open_gripper",) if self._is_open else ("close_gripper",)
