"""Reach a point in the air."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec import ArraySpec, Observation
from robo_sims.arm.control import Motion
from robo_sims.arm.expert import Expert, ExpertFactory
from robo_sims.arm.physics import ArmPhysics
from robo_sims.arm.rewards import Progress, closeness

REGION = np.array([[0.35, -0.25, 0.06], [0.65, 0.25, 0.40]])
"""[m] where the goal may be, frame base."""
TOLERANCE = 0.02
"""[m] from the goal to the point between the finger pads."""
HELD_STEPS = 3
"""control steps in a row for which it must stay there: passing by does not count"""


class ReachExpert(Expert):
    """Go straight to the goal."""

    def __init__(self, random: np.random.Generator) -> None:
        self._gain = random.uniform(0.5, 0.9)  # share of the way to go in one step
        self._opening = random.uniform(0.0, 0.08)

    @override
    def motion(self, observation: Observation) -> Motion:
        return Motion(self._gain * observation["goal_from_gripper"], 0.0, self._opening)


class Reach:
    """A goal anywhere in 30 cm by 50 cm by 34 cm; bring the gripper to it and stay."""

    bodies: ClassVar[str] = """
    <body name="goal" mocap="true" pos="0.5 0 0.2">
      <geom name="goal" type="sphere" size="0.02" contype="0" conaffinity="0" group="1" rgba="0.15 0.65 0.35 0.75"/>
    </body>"""
    instruction: ClassVar[str] = "move the gripper to the green point"
    success_rule: ClassVar[str] = "the point between the finger pads is within 2 cm of the goal for 3 control steps in a row"
    max_steps: ClassVar[int] = 60
    grasps: ClassVar[bool] = False
    observation: ClassVar[tuple[ArraySpec, ...]] = (
        ArraySpec(
            "goal_position",
            (3,),
            unit="m",
            frame="base",
            role="goal",
            meaning="x (forward), y (left), z (up) of the point to reach",
        ),
        ArraySpec(
            "goal_from_gripper",
            (3,),
            unit="m",
            frame="base",
            role="goal",
            meaning="from the point between the finger pads to the goal: goal_position - end_effector_position",
        ),
    )
    expert: ClassVar[ExpertFactory] = ReachExpert

    def __init__(self, physics: ArmPhysics) -> None:
        self._physics = physics
        self._goal = physics.data.mocap_pos[0]
        self._held = 0

    def reset(self, random: np.random.Generator) -> None:
        """Draws the goal."""
        self._goal[:] = random.uniform(*REGION)
        self._held = 0

    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the goal."""
        return {
            "goal_position": self._goal.astype(np.float32),
            "goal_from_gripper": (self._goal - self._physics.gripper_position).astype(np.float32),
        }

    def is_success(self) -> bool:
        """Counts the control steps near the goal."""
        self._held = self._held + 1 if self._distance() < TOLERANCE else 0
        return self._held >= HELD_STEPS

    def progress(self) -> Progress:
        """Returns how near the gripper is."""
        return {"reach": closeness(self._distance(), 0.1)}

    def _distance(self) -> float:
        return float(np.linalg.norm(self._goal - self._physics.gripper_position))
