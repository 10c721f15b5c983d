"""Driver of an arm behind HIL-SERL's Franka server. The arm may be real, or the twin, whose server has the same routes.

Unlike HIL-SERL's client, this driver clears errors only at the request of a person, since an arm must not restart on its own.
Every call has a timeout, and every status is checked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Array
from robo_real.clock import Clock, MonotonicClock
from robo_real.http_client import RobotClient
from robo_real.rotations import from_xyzw, rotate, to_xyzw
from robo_rl.errors import RobotUnavailable

POSITIONS_PER_METRE = 2550
"""Number of position steps of /move_gripper for each metre of opening; positions are 0 (closed) to 255 (open)."""
GRIPPER_PAUSE, GRIPPER_PATIENCE = 0.3, 1.0
"""[s] between two calls to a gripper that does not answer or move; [s] without an answer until the arm is stopped"""
GRIPPER_MOVES = 0.002
"""[m] least change of the opening that shows that the gripper follows its command"""
SHAPES = {"pose": (7,), "vel": (6,), "force": (3,), "torque": (3,), "q": (7,), "dq": (7,), "jacobian": (6, 7)}


@dataclass(frozen=True)
class FrankaHttpOptions:
    """Options of the driver: address of the server, and its gripper."""

    url: str = "http://127.0.0.1:5000"
    """address of the Franka server"""
    width: float = 0.08
    """[m] opening of the gripper that the server reports as 1"""
    timeout: float = 0.2
    """[s] longest time of a call, except for a joint reset"""


class FrankaHttp(ArmDriver):
    """Driver of a Franka arm over HTTP."""

    name = "robot/Franka"
    options = FrankaHttpOptions
    period = 0.02
    """Time [s] between two set points."""

    def __init__(self, options: FrankaHttpOptions | None = None, clock: Clock | None = None) -> None:
        self._options = options or FrankaHttpOptions()
        self.clock = clock or MonotonicClock()
        self._client = RobotClient(self._options.url, self._options.timeout, token="")
        self.width = self._options.width
        self._position = -1  # last position sent to the gripper, -1 before the first
        self._opening = self._opening_then = 0.0  # [m] measured now, and when that position was sent
        self._again_at = np.inf  # [s] time of a repetition
        self._silent_since, self._retry_at = np.inf, -np.inf  # [s] start of the gripper's silence, time of the next call

    @override
    def connect(self) -> None:
        """Read the state once, so that a wrong address is noticed before any motion."""
        self.read()

    @override
    def read(self) -> ArmState:
        """Request the newest measurement; raises RobotUnavailable if the answer is late or malformed."""
        requested = self.clock.now()  # the measurement is at least as new as this
        numbers = self._numbers(self._client.post("/getstate"))
        quaternion = numbers["pose"][3:]
        if not 0.9 < float(np.linalg.norm(quaternion)) < 1.1:
            raise RobotUnavailable("/getstate answers no unit quaternion.", got=quaternion.tolist())
        direction = from_xyzw(quaternion.tolist())
        self._opening = float(numbers["gripper_pos"]) * self._options.width
        return ArmState(
            stamp=requested,
            position=numbers["pose"][:3],
            quaternion=direction,
            velocity=numbers["vel"],
            force=np.array(rotate(direction, numbers["force"])),
            torque=np.array(rotate(direction, numbers["torque"])),
            joint_position=numbers["q"],
            joint_velocity=numbers["dq"],
            jacobian=numbers["jacobian"],
            opening=self._opening,
        )

    @override
    def move(self, target: ArmTarget) -> None:
        """Send the pose. Send the gripper's position, too, if the position has changed or its last command was lost.

        Raises RobotUnavailable if the server does not answer, or its gripper has not answered for GRIPPER_PATIENCE.
        """
        if target.opening is not None:
            self._grip(round(float(np.clip(target.opening * POSITIONS_PER_METRE, 0, 255))))
        self._client.post("/pose", {"arr": [*target.position.tolist(), *to_xyzw(target.quaternion)]})

    def _grip(self, position: int) -> None:
        now = self.clock.now()
        if now < self._retry_at or (position == self._position and not self._was_lost(position)):
            return
        try:
            self._client.post("/move_gripper", {"gripper_pos": position})
            self._position, self._silent_since, self._retry_at = position, np.inf, -np.inf
            self._opening_then, self._again_at = self._opening, now + GRIPPER_PAUSE
        except RobotUnavailable as error:
            self._silent_since, self._retry_at = min(self._silent_since, now), now + GRIPPER_PAUSE
            if now - self._silent_since > GRIPPER_PATIENCE:
                raise RobotUnavailable(
                    "The gripper does not answer.", got=error, allowed=f"for {GRIPPER_PATIENCE} s", fix="look at it"
                ) from None

    def _was_lost(self, position: int) -> bool:
        """Return whether the gripper is not at a position that was sent GRIPPER_PAUSE ago, and has not moved since then."""
        is_there = abs(position / POSITIONS_PER_METRE - self._opening) < GRIPPER_MOVES
        has_moved = abs(self._opening - self._opening_then) >= GRIPPER_MOVES
        return not is_there and not has_moved and self.clock.now() >= self._again_at

    @override
    def hold(self) -> None:
        pose = self._numbers(self._client.post("/getstate"))["pose"]
        self._client.post("/pose", {"arr": pose.tolist()})

    @override
    def recover(self) -> None:
        self._client.post("/clearerr")

    def joint_reset(self, timeout: float) -> None:
        """Let the server move the joints to a posture of its own, and wait. No limit and no hold of ours ends this motion.

        timeout: [s] half of the longest wait. Raises RobotUnavailable if the server does not answer within this wait.
        """
        self._client.post("/jointreset", timeout=2 * timeout)

    def update_param(self, parameters: dict[str, float]) -> None:
        """Set parameters of the server's impedance controller, name -> value."""
        self._client.post("/update_param", parameters)

    @override
    def close(self) -> None:
        self._client.close()

    def _numbers(self, answer: bytes) -> dict[str, Array]:
        try:
            state: dict[str, Any] = json.loads(answer)
            found = {name: np.asarray(state[name], np.float64) for name in (*SHAPES, "gripper_pos")}
        except (ValueError, KeyError, TypeError) as error:
            got = f"{type(error).__name__}: {error}"
            raise RobotUnavailable("The answer of /getstate is malformed.", got=got) from None
        wrong = {name: found[name].shape for name, shape in SHAPES.items() if found[name].shape != shape}
        if wrong:
            raise RobotUnavailable("/getstate answers arrays of other shapes.", got=wrong, allowed=SHAPES)
        return found
