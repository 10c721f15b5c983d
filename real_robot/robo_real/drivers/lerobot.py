"""Driver of any LeRobot robot with position servos, such as the SO-101 or Koch arm, in LeRobot's own environment.

LeRobot's robots report and take the positions of their motors, in units of their own. A YAML file maps the motors to the joints
of a model of the arm. Pose and Jacobian of the hand follow from the model, so that the guard treats this arm as any other:

    robot: {type: so101_follower, port: /dev/ttyACM0, id: left}    # LeRobot's own config
    model: so101.xml                                              # MJCF or URDF, beside this file
    hand: gripperframe                                            # site or body, its z axis pointing out of the hand
    joints:                                                       # of the model, in order
      shoulder_pan: {feature: shoulder_pan.pos}
      ...
    gripper: {feature: gripper.pos, closed: 2, open: 95, width: 0.07}
    cameras: {front: [480, 640]}                                  # of the robot's config: height and width

These robots measure no force, so no limit of force stops them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Array
from robo_real.arm_spec import arm_spec
from robo_real.cameras import Frame
from robo_real.clock import Clock, MonotonicClock
from robo_real.lerobot.arm_mapping import ArmFile, ArmMapping
from robo_real.lerobot.device_process import Reading
from robo_rl.errors import InvalidSetting, RobotUnavailable, UnknownName
from robo_rl.settings import settings_as
from robo_rl.spec.environment import ArraySpec, ObservationSpec
from robo_rl.system.plain_files import read_yaml

SILENT = 0.4
"""[s] without a new reading of the motors after which the robot counts as lost"""


@dataclass(frozen=True)
class LeRobotOptions:
    """Options of the driver."""

    config: Path | None = None
    """required: YAML file that maps the robot to a model of the arm"""
    python: str = "python"
    """Python interpreter of the environment in which lerobot is installed"""


@dataclass(frozen=True, kw_only=True)
class LeRobotConfig(ArmFile):
    """Content of the YAML file of `LeRobotOptions.config`."""

    robot: Mapping[str, Any]
    """LeRobot's config of the robot, with its `type`"""
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """name of a camera in LeRobot's config -> height and width [pixel] of its pictures"""


class LeRobotArm(ArmDriver):
    """Driver of an arm that LeRobot's class `Robot` drives, in a process of its own."""

    name = "robot/LeRobot"
    options = LeRobotOptions
    period = 0.02
    """[s] between two set points"""

    def __init__(self, options: LeRobotOptions | None = None, clock: Clock | None = None) -> None:
        """Read the YAML file; `connect` starts the process.

        Raises:
            InvalidSetting: The file is missing or contradicts itself.
            UnknownName: A setting, joint or hand of the file is unknown.
        """
        options = options or LeRobotOptions()
        if options.config is None:
            raise InvalidSetting(
                "The driver lerobot needs a file that maps the robot to a model of the arm.",
                allowed="a YAML file",
                fix="--driver.settings.config FILE; docs/robots/lerobot.md has one to start from",
            )
        config: LeRobotConfig = settings_as(LeRobotConfig, read_yaml(options.config), source=str(options.config))
        self.clock = clock or MonotonicClock()
        self._mapping = ArmMapping(config, options.config)
        self._process = self._mapping.process(options.python, "robot", config.robot)
        self.has_gripper = self._mapping.gripper is not None
        self.width = self._mapping.gripper.width if self._mapping.gripper else 0.0
        self._cameras = {f"camera_{name}": name for name in config.cameras}
        sizes = zip(self._cameras, config.cameras.values(), strict=True)
        arrays = (ArraySpec(name, (*size, 3), "uint8", 0, 255, role="image") for name, size in sizes)
        bare = arm_spec(self.name, len(config.joints))
        self.spec = replace(bare, observation=ObservationSpec((*bare.observation.arrays, *arrays)))
        self._lock = threading.RLock()
        self._state: ArmState | None = None
        self._number = 0
        self._sent: Array | None = None  # (J,) [rad] newest command, None before the first
        self._is_held = False
        self._opened: float | None = None  # newest command, share of the width

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""
        return tuple(self._cameras)

    @override
    def connect(self) -> None:
        """Start LeRobot's process and connect the robot.

        Raises:
            RobotUnavailable: The process does not start, or the robot does not connect.
            UnknownName: The robot has no motor or camera of a name in the YAML file.
            InvalidSetting: The pictures have another size, or the robot takes commands that the file does not map.
        """
        if self._process.is_started:
            return
        self._process.start()
        try:
            self._require_features()
        except Exception:
            self._process.close()
            raise

    @override
    def read(self) -> ArmState:
        """Return the newest measurement; raises RobotUnavailable if the process ended or has sent nothing for SILENT."""
        with self._lock:
            reading = self._process.newest(SILENT)
            if self._state is None or reading.number != self._number:
                self._state, self._number = self._measured(reading), reading.number
            return self._state

    @override
    def move(self, target: ArmTarget) -> None:
        with self._lock:
            start = self.read().joint_position if self._sent is None or self._is_held else self._sent
            self._sent, self._is_held = self._mapping.kinematics.joints(target.position, target.quaternion, start), False
            self._send(self._sent, target.opening)

    @override
    def hold(self) -> None:
        """Send the servos to their measured positions, but only once, since a load would pull them down a little each time."""
        with self._lock:
            if self._state is None or self._is_held or self._sent is None:
                return
            here = self.read().joint_position
            self._sent, self._is_held = np.where(np.isfinite(here), here, self._sent), True
            self._send(self._sent, None)

    @override
    def recover(self) -> None:
        """Start the process again if it has ended or is silent; called only after a person has looked."""
        with self._lock:
            try:
                self._process.newest(SILENT)
            except RobotUnavailable:
                self.close()
                self.connect()

    @override
    def close(self) -> None:
        """Disconnect the robot. Its own config decides whether the motors then hold or go limp."""
        self._process.close()
        self._state, self._sent, self._opened, self._number = None, None, None, 0

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera; raises RobotUnavailable as `read` does."""
        reading = self._process.newest(SILENT)
        return Frame(reading.pictures[self._cameras[camera]], self._stamp(reading), reading.number)

    def _stamp(self, reading: Reading) -> float:
        return reading.stamp * getattr(self.clock, "speed", 1.0)

    def _measured(self, reading: Reading) -> ArmState:
        joints, stamp = self._mapping.joints(reading.values), self._stamp(reading)
        before = self._state
        since = 0.0 if before is None else stamp - before.stamp
        speeds = np.zeros(len(joints)) if before is None or since <= 0 else (joints - before.joint_position) / since
        position, direction, jacobian = self._mapping.kinematics.hand(joints)
        return ArmState(
            stamp=stamp,
            position=position,
            quaternion=direction,
            velocity=jacobian @ speeds,
            force=np.zeros(3),
            torque=np.zeros(3),
            joint_position=joints,
            joint_velocity=speeds,
            jacobian=jacobian,
            opening=self.width * self._mapping.opened(reading.values),
        )

    def _send(self, joints: Array, opening: float | None) -> None:
        """Send joint positions (J,) [rad] and an opening [m] of the gripper.

        For the opening None the last commanded opening is repeated, since the gripper may hold an object. If there is none yet,
        the measured opening is sent, since these robots take the positions of all motors at once.
        """
        if opening is not None and self.has_gripper:
            self._opened = min(max(opening / self.width, 0.0), 1.0)
        elif self._opened is None:
            self._opened = self.read().opening / self.width if self.has_gripper else 0.0
        self._process.send(self._mapping.commands(joints, self._opened))

    def _require_features(self) -> None:
        """Raise UnknownName or InvalidSetting if the robot has no motor or camera of the config, or its pictures differ."""
        features, commands = self._process.features, self._process.commands
        self._mapping.require_read(self._process)
        for motor in self._mapping.features:
            if motor not in commands:
                raise UnknownName("command of the LeRobot robot", motor, commands)
        for name, of in self._cameras.items():
            if of not in features:
                raise UnknownName("camera of the LeRobot robot", of, [name for name, shape in features.items() if shape])
            if features[of] != self.spec.observation[name].shape:
                what = f"Pictures of the camera {of!r} have another size than the config says."
                raise InvalidSetting(what, got=features[of], allowed=self.spec.observation[name].shape)
        if others := sorted(set(commands) - set(self._mapping.features)):
            what, allowed = "The LeRobot robot takes commands that the config does not map.", ", ".join(self._mapping.features)
            raise InvalidSetting(what, got=", ".join(others), allowed=allowed, fix="map each to a joint or the gripper")
