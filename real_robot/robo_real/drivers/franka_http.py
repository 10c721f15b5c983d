"""Drives an arm behind HIL-SERL's Franka server: a real one, or the twin, which speaks the same contract.

Differs from their client, because an arm must not start again by itself: errors are cleared only when a person asks for it,
every call has a timeout, and every status is looked at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Array
from robo_real.clock import Clock, MonotonicClock
from robo_real.link import Link
from robo_real.rotations import from_xyzw, rotate, to_xyzw
from robo_rl.errors import RobotUnavailable

POSITIONS_PER_METRE = 2550
"""of /move_gripper"""
GRIPPER_PAUSE, GRIPPER_PATIENCE = 0.3, 1.0
"""[s] between two calls to a gripper that does not answer, and of silence after which the arm does not go on without it"""
SHAPES = {"pose": (7,), "vel": (6,), "force": (3,), "torque": (3,), "q": (7,), "dq": (7,), "jacobian": (6, 7)}


@dataclass(frozen=True)
class FrankaHttpOptions:
    """Options of the driver: address and kind of gripper."""

    url: str = "http://127.0.0.1:5000"
    width: float = 0.08
    """[m] between the fingers where the gripper reads 1"""
    timeout: float = 0.2
    """[s] of an ordinary call"""


class FrankaHttp(ArmDriver):
    """Implements ArmDriver."""

    name = "robot/Franka"
    options = FrankaHttpOptions
    period = 0.02
    """[s] between two set points"""

    def __init__(self, options: FrankaHttpOptions | None = None, clock: Clock | None = None) -> None:
        self._options = options or FrankaHttpOptions()
        self.clock = clock or MonotonicClock()
        self._link = Link(self._options.url, self._options.timeout)
        self._position = -1  # that the gripper was last sent to
        self._silent_since, self._asks_again = np.inf, -np.inf  # [s] that the gripper does not answer; not before

    @override
    def connect(self) -> None:
        """Asks for the state once, so that a wrong address is noticed before anything moves."""
        self.read()

    @override
    def read(self) -> ArmState:
        """Returns the state; raises RobotUnavailable if the answer is late, or not what the contract says."""
        asked = self.clock.now()  # the measurement is at least as new as this
        numbers = self._numbers(self._link.post("/getstate"))
        quaternion = numbers["pose"][3:]
        if not 0.9 < float(np.linalg.norm(quaternion)) < 1.1:
            raise RobotUnavailable("/getstate answers no unit quaternion.", got=quaternion.tolist())
        direction = from_xyzw(quaternion.tolist())
        return ArmState(
            stamp=asked,
            position=numbers["pose"][:3],
            quaternion=direction,
            velocity=numbers["vel"],
            force=np.array(rotate(direction, numbers["force"])),
            torque=np.array(rotate(direction, numbers["torque"])),
            joint_position=numbers["q"],
            joint_velocity=numbers["dq"],
            jacobian=numbers["jacobian"],
            opening=float(numbers["gripper_pos"]) * self._options.width,
        )

    @override
    def move(self, target: ArmTarget) -> None:
        """Sends the pose, and the gripper where that has changed; a gripper that does not answer stays as it is for a while."""
        self._grip(round(float(np.clip(target.opening * POSITIONS_PER_METRE, 0, 255))))
        self._link.post("/pose", {"arr": [*target.position.tolist(), *to_xyzw(target.quaternion)]})

    def _grip(self, position: int) -> None:
        now = self.clock.now()
        if position == self._position or now < self._asks_again:
            return
        try:
            self._link.post("/move_gripper", {"gripper_pos": position})
            self._position, self._silent_since = position, np.inf
        except RobotUnavailable as error:
            self._silent_since, self._asks_again = min(self._silent_since, now), now + GRIPPER_PAUSE
            if now - self._silent_since > GRIPPER_PATIENCE:
                raise RobotUnavailable(
                    "The gripper does not answer.", got=error, allowed=f"for {GRIPPER_PATIENCE} s", fix="look at it"
                ) from None

    @override
    def hold(self) -> None:
        pose = self._numbers(self._link.post("/getstate"))["pose"]
        self._link.post("/pose", {"arr": pose.tolist()})

    @override
    def recover(self) -> None:
        """Clears the arm's error; nothing else in this file does."""
        self._link.post("/clearerr")

    def joint_reset(self, timeout: float) -> None:
        """Let the server move the joints to its own posture, which blocks: not within the limits, and no hold ends it."""
        self._link.post("/jointreset", timeout=2 * timeout)

    def update_param(self, parameters: dict[str, float]) -> None:
        """Sets parameters of the impedance controller."""
        self._link.post("/update_param", parameters)

    @override
    def close(self) -> None:
        self._link.close()

    def _numbers(self, answer: bytes) -> dict[str, Array]:
        try:
            told: dict[str, Any] = json.loads(answer)
            found = {name: np.asarray(told[name], np.float64) for name in (*SHAPES, "gripper_pos")}
        except (ValueError, KeyError, TypeError) as error:
            raise RobotUnavailable(
                "/getstate answers what the contract does not say.", got=f"{type(error).__name__}: {error}"
            ) from None
        wrong = {name: found[name].shape for name, shape in SHAPES.items() if found[name].shape != shape}
        if wrong:
            raise RobotUnavailable("/getstate answers arrays of other shapes.", got=wrong, allowed=SHAPES)
        return found
