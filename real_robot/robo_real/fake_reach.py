"""Fake arm with a point to reach, on a manual clock: exactly reproducible, and fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_real.arm import Scene
from robo_real.arm_spec import arm_spec
from robo_real.clock import ManualClock
from robo_real.drivers.fake import START, FakeArm
from robo_real.environment import RobotEnv
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_rl.spec.environment import ArraySpec, ObservationSpec

GOALS = np.array([[0.40, -0.15, 0.10], [0.60, 0.15, 0.35]])
"""(2, 3) [m] lowest and highest x, y, z of a goal"""
TOLERANCE = 0.02
"""[m] distance to the goal within which the task is done"""
GOAL_ARRAYS = (
    ArraySpec("goal_position", (3,), unit="m", frame="base", role="goal"),
    ArraySpec("goal_from_gripper", (3,), unit="m", frame="base", role="goal"),
)


class PointToReach(Scene):
    """Scene with a goal position that the hand must reach, drawn uniformly from GOALS at each reset."""

    def __init__(self, arm: FakeArm) -> None:
        self._arm, self._goal = arm, np.array(START)

    @override
    def reset(self, seed: int) -> None:
        self._goal = np.random.default_rng(seed).uniform(*GOALS)
        self._arm.reset()

    @override
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        away = self._goal - self._arm.read().position
        return {"goal_position": self._goal.astype(np.float32), "goal_from_gripper": away.astype(np.float32)}

    @override
    def success(self) -> bool | None:
        return bool(np.linalg.norm(self._goal - self._arm.read().position) < TOLERANCE)


def fake_reach(**arguments: Any) -> RobotEnv:
    """Return the environment `robot/Fake-v0`: a simulated fake arm on a manual clock that has to reach a point.

    arguments: keyword arguments of `RobotEnv` after `scene`, such as `render_mode`.
    """
    clock = ManualClock()
    arm = FakeArm(clock=clock)
    scene = PointToReach(arm)
    bare = arm_spec("robot/Fake-v0")
    arrays = (*bare.observation.arrays, *GOAL_ARRAYS)
    spec = replace(
        bare,
        observation=ObservationSpec(arrays),
        instruction="move the gripper to the point",
        max_steps=60,
        success_rule=f"the hand is within {TOLERANCE * 100:.0f} cm of the point",
    )
    return RobotEnv(GuardedArm(arm, TWIN, spec=spec, scene=scene), scene, **arguments)
