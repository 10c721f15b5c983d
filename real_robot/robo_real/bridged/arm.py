"""Driver that turns hand poses into joint angles, for an arm whose device program runs in a process of its own.

The arm has position servos. A MuJoCo model of the arm converts between joint angles and the pose of the hand.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Array
from robo_real.arm_spec import MAX_OPENING, arm_spec
from robo_real.bridged.arm_mapping import ArmMapping
from robo_real.bridged.device_process import DeviceProcess, Reading
from robo_real.cameras import Frame
from robo_real.clock import Clock
from robo_rl.errors import InvalidSetting, RobotUnavailable, UnknownName
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec

SILENT = 0.4
"""[s] without a reading after which the robot counts as lost"""


class BridgedArm(ArmDriver):
    """Driver of an arm whose device program runs in a separate process (a bridge). Such an arm measures no force."""

    period = 0.02
    """[s] between two set points"""

    def __init__(
        self, name: str, clock: Clock, mapping: ArmMapping, process: DeviceProcess, cameras: Mapping[str, tuple[int, int]]
    ) -> None:
        """Create the driver; nothing is connected yet.

        Args:
            name: Name of the arm.
            clock: Clock of the robot.
            mapping: Which motors of the device are which joints of a model.
            process: Process that is to connect the device, not started.
            cameras: Camera of the device -> height and width [pixel] of its pictures.
        """
        self.name, self.clock, self._mapping, self._process = name, clock, mapping, process
        self.has_gripper = mapping.gripper is not None
        self.width = mapping.gripper.width if mapping.gripper else 0.0
        self._cameras = {f"camera_{camera}": camera for camera in cameras}
        self.spec = self._spec(cameras)
        self._lock = threading.RLock()
        self._state: ArmState | None = None
        self._sent: Array | None = None  # (J,) [rad] newest command, None before the first
        self._is_held = False
        self._opened: float | None = None  # newest command, share of the width

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""
        return tuple(self._cameras)

    @override
    def connect(self) -> None:
        """Start the process and connect the robot; raises RobotUnavailable, UnknownName or InvalidSetting."""
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
        """Return the newest measurement; raises RobotUnavailable if the process ended or is silent."""
        with self._lock:
            reading = self._process.newest(SILENT)
            if self._state is None or reading.stamp * self._speed > self._state.stamp:
                self._state = self._measured(reading)
            return self._state

    @override
    def move(self, target: ArmTarget) -> None:
        with self._lock:
            start = self.read().joint_position if self._sent is None or self._is_held else self._sent
            self._sent, self._is_held = self._mapping.kinematics.joints(target.position, target.quaternion, start), False
            self._send(self._sent, target.opening)

    @override
    def hold(self) -> None:
        """Send the servos to where they are; once, since a load would pull them down a little each time."""
        with self._lock:
            if self._state is None or self._is_held or self._sent is None:
                return
            here = self.read().joint_position
            self._sent, self._is_held = np.where(np.isfinite(here), here, self._sent), True
            self._send(self._sent, None)

    @override
    def recover(self) -> None:
        """Start the process again if it has ended or is silent; call this only after a person has looked."""
        with self._lock:
            try:
                self._process.newest(SILENT)
            except RobotUnavailable:
                self.close()
                self.connect()

    @override
    def close(self) -> None:
        """Disconnect the robot's device program; what the motors then do is decided by the robot's own config."""
        self._process.close()
        self._state, self._sent, self._opened = None, None, None

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera; raises RobotUnavailable."""
        reading, name = self._process.newest(SILENT), self._cameras[camera]
        if name not in reading.pictures:
            raise RobotUnavailable(f"The camera {name!r} has sent no picture yet.", fix="look whether it runs")
        frame = reading.pictures[name]
        return replace(frame, stamp=frame.stamp * self._speed)

    @property
    def _speed(self) -> float:
        speed: float = getattr(self.clock, "speed", 1.0)
        return speed

    def _spec(self, cameras: Mapping[str, tuple[int, int]]) -> EnvironmentSpec:
        sizes = zip(self._cameras, cameras.values(), strict=True)
        arrays = (ArraySpec(name, (*size, 3), "uint8", 0, 255, role="image") for name, size in sizes)
        bare = arm_spec(self.name, len(self._mapping.motors), self.width or MAX_OPENING)
        return replace(bare, observation=ObservationSpec((*bare.observation.arrays, *arrays)))

    def _measured(self, reading: Reading) -> ArmState:
        joints, stamp = self._mapping.joints(reading.values), reading.stamp * self._speed
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
        """Send joint positions (J,) [rad] and an opening [m]; None repeats the last one, since it may hold an object.

        Before the first one the measured opening is sent, since these robots take all motors at once.
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
                raise UnknownName(f"command of {self.name}", motor, commands)
        for name, of in self._cameras.items():
            if of not in features:
                raise UnknownName(f"camera of {self.name}", of, [name for name, shape in features.items() if shape])
            if features[of] != self.spec.observation[name].shape:
                what = f"Pictures of the camera {of!r} have another size than the config says."
                raise InvalidSetting(what, got=features[of], allowed=self.spec.observation[name].shape)
        if others := sorted(set(commands) - set(self._mapping.features)):
            what, allowed = f"{self.name} takes commands that the config does not map.", ", ".join(self._mapping.features)
            raise InvalidSetting(what, got=", ".join(others), allowed=allowed, fix="map each to a joint or the gripper")
