"""Spec of a real arm: identical to that of the simulated arm tasks, units included (a test compares them)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_real.arm import ArmState, ArmTarget
from robo_real.rotations import heading, pointing_down
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec

MAX_STEP = (0.015, 0.015, 0.015, 0.12)
"""Largest displacement of the hand [m] and [rad] in one control period, in either direction."""
MAX_OPENING = 0.08
"""[m]"""
CONTROL_PERIOD = 0.05
"""[s]"""


def arm_arrays(joints: int = 7) -> tuple[ArraySpec, ...]:
    """Return the arrays that every arm measures."""
    return (
        ArraySpec("joint_position", (joints,), unit="rad"),
        ArraySpec("joint_velocity", (joints,), unit="rad/s"),
        ArraySpec("gripper_opening", (1,), unit="m"),
        ArraySpec("end_effector_position", (3,), unit="m", frame="base"),
        ArraySpec("end_effector_quaternion", (4,), unit="1", frame="base"),
    )


def arm_spec(name: str, joints: int = 7) -> EnvironmentSpec:
    """Return the spec of an arm without a task: displacements of a hand that points down, at 20 Hz."""
    action = ActionSpec(
        names=("dx", "dy", "dz", "turn", "gripper_opening"),
        low=(*(-step for step in MAX_STEP), 0.0),
        high=(*MAX_STEP, MAX_OPENING),
        units=("m", "m", "m", "rad", "m"),
        mode="end_effector_delta",
        control_period=CONTROL_PERIOD,
        frame="base",
    )
    return EnvironmentSpec(name, observation=ObservationSpec(arm_arrays(joints)), action=action)


def observed(state: ArmState) -> dict[str, npt.NDArray[np.float32]]:
    """Return a measurement as the observation of a policy; the quaternion's x is not negative."""
    sign = 1.0 if state.quaternion[1] >= 0 else -1.0
    return {
        "joint_position": state.joint_position.astype(np.float32),
        "joint_velocity": state.joint_velocity.astype(np.float32),
        "gripper_opening": np.array((state.opening,), np.float32),
        "end_effector_position": state.position.astype(np.float32),
        "end_effector_quaternion": np.array([sign * value for value in state.quaternion], np.float32),
    }


@dataclass(frozen=True)
class HandMotion:
    """Conversion between actions of a policy and targets of a hand that points down."""

    spec: ActionSpec

    def target(self, action: npt.ArrayLike, state: ArmState) -> ArmTarget:
        """Return the target of an action (A,), relative to the measured pose; raises InvalidAction.

        Relative to the last target, an offset would build up against an obstacle.
        """
        motion = self.spec.to_physical(action)
        yaw = heading(state.quaternion) + float(motion[3])
        return ArmTarget(state.position + motion[:3], pointing_down(yaw), float(motion[4]))

    def action(self, target: ArmTarget, state: ArmState) -> npt.NDArray[np.float32]:
        """Return the action (A,) in [-1, 1] that leads from the measured pose to a target."""
        turn = heading(target.quaternion) - heading(state.quaternion)
        wrapped = (turn + np.pi) % (2 * np.pi) - np.pi
        opening = state.opening if target.opening is None else target.opening
        return self.spec.to_normalized([*(target.position - state.position), wrapped, opening])
