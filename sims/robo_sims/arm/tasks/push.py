"""Push a cube across the table onto a mark."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.spec import ArraySpec, Observation
from robo_sims.arm.control import Motion
from robo_sims.arm.expert import heading, wrap
from robo_sims.arm.physics import ArmPhysics, Array
from robo_sims.arm.rewards import Progress, closeness
from robo_sims.arm.tasks.pick import CUBE, HALF_SIZE, OBJECT_ARRAYS, Cube

REGION = np.array([[0.40, -0.16], [0.60, 0.16]])
"""[m] where cube and mark may be, frame base."""
DISTANCE = np.array([0.10, 0.20])
"""[m] nearest and farthest that the cube starts from the mark."""
TOLERANCE = 0.03
"""[m] from the mark to the cube's middle, along the table."""


class PushExpert:
    """Go behind the cube as seen from the mark, lower the fingers across the way, push; go round again when it slips off."""

    def __init__(self, random: np.random.Generator) -> None:
        self._gain = random.uniform(0.6, 0.9)  # share of the way to go in one step
        self._stand_off = random.uniform(0.065, 0.085)  # [m] behind the cube's middle before pushing
        self._height = random.uniform(0.018, 0.026)  # [m] of the fingers while pushing
        self._opening = random.uniform(0.035, 0.05)  # [m] two contact points keep the cube from turning

    def motion(self, observation: Observation) -> Motion:
        """Returns the motion for the next control period."""
        to_mark = observation["goal_from_object"].astype(np.float64)
        way = to_mark / max(float(np.linalg.norm(to_mark)), 1e-6)
        from_cube = -observation["object_from_gripper"][:2].astype(np.float64)
        behind = -float(from_cube @ way)
        beside = float(abs(from_cube[1] * way[0] - from_cube[0] * way[1]))
        turn = wrap(float(np.arctan2(way[1], way[0])) - heading(observation), np.pi)
        if abs(heading(observation) + turn) > 1.7:
            turn -= np.sign(turn) * np.pi
        if behind > 0.02 and beside < 0.015 and abs(turn) < 0.3 and self._is_low(observation):
            return self._motion(
                observation, 0.25 * (to_mark + (behind - 0.04) * way) + 0.006 * way - self._sideways(from_cube, way), turn
            )
        return self._go_behind(observation, from_cube, way, turn)

    def _go_behind(self, observation: Observation, from_cube: Array, way: Array, turn: float) -> Motion:
        to_start = -self._stand_off * way - from_cube
        is_there = float(np.linalg.norm(to_start)) < 0.012 and abs(turn) < 0.15
        may_be_low = is_there or (self._is_low(observation) and float(np.linalg.norm(to_start)) < 0.02)
        height = self._height if may_be_low else 0.11
        if height > 0.1 and observation["end_effector_position"][2] < 0.09:
            to_start = 0.0 * to_start  # first up, then across
        return self._motion(observation, self._gain * to_start, turn, height)

    def _sideways(self, from_cube: Array, way: Array) -> Array:
        return 0.7 * (from_cube - (from_cube @ way) * way)

    def _is_low(self, observation: Observation) -> bool:
        return bool(observation["end_effector_position"][2] < 0.035)

    def _motion(self, observation: Observation, across: Array, turn: float, height: float | None = None) -> Motion:
        up = (self._height if height is None else height) - observation["end_effector_position"][2]
        return Motion(np.array([across[0], across[1], self._gain * up]), self._gain * turn, self._opening)


class Push:
    """A cube and a mark 10 to 20 cm apart on the table; push the cube onto the mark."""

    bodies = (
        CUBE
        + """
    <body name="goal" mocap="true" pos="0.5 0 0.001">
      <geom name="goal" type="cylinder" size="0.03 0.0008" contype="0" conaffinity="0" group="1" rgba="0.15 0.65 0.35 1"/>
    </body>"""
    )
    instruction = "push the red cube onto the green mark"
    success_rule = "the cube's middle is within 3 cm of the mark, along the table, and the cube rests on the table"
    max_steps = 150
    observation = (
        *OBJECT_ARRAYS,
        ArraySpec("goal_position", (2,), unit="m", frame="base", role="goal"),
        ArraySpec("goal_from_object", (2,), unit="m", frame="base", role="goal"),
    )
    expert = PushExpert

    def __init__(self, physics: ArmPhysics) -> None:
        self._cube = Cube(physics)
        self._goal = physics.data.mocap_pos[0]

    def reset(self, random: np.random.Generator) -> None:
        """Draws the cube, then a mark that is neither too near nor too far."""
        cube, mark = _draw_pair(random)
        self._cube.body.place((*cube, HALF_SIZE), random.uniform(-np.pi, np.pi))
        self._goal[:2] = mark

    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the cube and the mark."""
        return {
            **self._cube.observe(),
            "goal_position": self._goal[:2].astype(np.float32),
            "goal_from_object": self._to_mark().astype(np.float32),
        }

    def is_success(self) -> bool:
        """Judges by place alone: how the cube came there does not matter."""
        on_table = self._cube.body.position[2] < HALF_SIZE + 0.005
        return bool(on_table and np.linalg.norm(self._to_mark()) < TOLERANCE)

    def progress(self) -> Progress:
        """Returns how near the gripper is to the cube, and the cube to the mark."""
        return {"reach": closeness(self._cube.distance(), 0.1), "push": closeness(float(np.linalg.norm(self._to_mark())), 0.1)}

    def _to_mark(self) -> Array:
        difference: Array = self._goal[:2] - self._cube.body.position[:2]
        return difference


def _draw_pair(random: np.random.Generator) -> tuple[Array, Array]:
    while True:
        cube, mark = random.uniform(*REGION), random.uniform(*REGION)
        if DISTANCE[0] <= np.linalg.norm(mark - cube) <= DISTANCE[1]:
            return cube, mark
