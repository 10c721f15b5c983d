"""Task `ArmReach`: move the gripper to a goal point in the air."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import ArraySpec, Observation
from robo_sims.arm.captions import COLOURS, Instruction, Sentence, States, Truth, distance, near_sentences, nearness
from robo_sims.arm.control import Motion
from robo_sims.arm.expert import Expert, ExpertFactory
from robo_sims.arm.physics import MAX_OPENING, Arm, ArmPhysics, Array, Body, Mask, length
from robo_sims.arm.pose_sampling import Pose, Random, SceneObject, anywhere, in_line, near, one_of, several, turn
from robo_sims.arm.rewards import Progress, closeness
from robo_sims.arm.tasks.task import ArmTask, Kind, vector_spec

REGION = np.array([[0.35, -0.25, 0.06], [0.65, 0.25, 0.40]])
"""Lowest and highest position (2, 3) [m] of the point to reach, frame base."""
TOLERANCE = 0.02
"""Largest distance [m] from the goal to the point between the finger pads at success."""


class ReachExpert(Expert):
    """Expert that moves the gripper straight to the goal."""

    def __init__(self, random: np.random.Generator) -> None:
        self._gain = random.uniform(0.5, 0.9)  # share of the way to go in one step
        self._opening = random.uniform(0.0, 0.08)

    @override
    def motion(self, observation: Observation) -> Motion:
        return Motion(self._gain * observation["goal_from_gripper"], 0.0, self._opening)


class Reach(ArmTask):
    """Move the gripper to a goal anywhere in 30 cm by 50 cm by 34 cm, and stay."""

    bodies: ClassVar[str] = """
    <body name="goal" mocap="true" pos="0.5 0 0.2">
      <geom name="goal" type="sphere" size="0.02" contype="0" conaffinity="0" group="1" rgba="0.15 0.65 0.35 0.75"/>
    </body>"""
    instruction: ClassVar[str] = "move the gripper to the green point"
    success_rule: ClassVar[str] = "the point between the finger pads is within 2 cm of the goal for 3 control steps in a row"
    max_steps: ClassVar[int] = 60
    held_steps: ClassVar[int] = 3  # passing by does not count
    grasps: ClassVar[bool] = False
    observation: ClassVar[tuple[ArraySpec, ...]] = (
        vector_spec("goal_position", 3, "goal", "x (forward), y (left), z (up) of the point to reach"),
        vector_spec(
            "goal_from_gripper",
            3,
            "goal",
            "from the point between the finger pads to the goal: goal_position - end_effector_position",
        ),
    )
    expert: ClassVar[ExpertFactory] = ReachExpert
    kinds: ClassVar[Mapping[str, Kind]] = {"point": Kind("goal", COLOURS)}

    def __init__(self, arm: Arm) -> None:
        super().__init__(arm)
        self._goal = Body(arm, "goal").position

    @override
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        physics.place("goal", random.uniform(*REGION))

    @override
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        return {"goal_position": self._goal, "goal_from_gripper": self._goal - self.arm.gripper_position}

    @override
    def holds(self) -> Mask:
        return self._distance() < TOLERANCE

    @override
    def progress(self) -> Progress:
        return {"reach": closeness(self._distance(), 0.1)}

    @staticmethod
    @override
    def instructions() -> Iterator[Instruction]:
        """Yield instructions to reach a point; progress is the nearness of the gripper."""

        def progress(states: States, colour: str) -> Array:
            return nearness(distance(states, colour, "point"))

        def complete(states: States, colour: str) -> Truth:
            return distance(states, colour, "point") < TOLERANCE

        for colour in COLOURS:
            yield Instruction(
                (
                    f"move the gripper to the {colour} point",
                    f"reach the {colour} point",
                    f"bring the hand to the {colour} point",
                ),
                ((colour, "point"),),
                partial(progress, colour=colour),
                partial(complete, colour=colour),
            )

    @staticmethod
    @override
    def descriptions() -> Iterator[Sentence]:
        return near_sentences("point")

    @staticmethod
    @override
    def scene(random: Random) -> tuple[SceneObject, ...]:
        """Return one or two random goal points in the air for a caption scene.

        Two points have different colours and are at least 6 cm apart.
        """
        return several("point", "green", REGION, random, apart=0.06)

    @staticmethod
    @override
    def pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a random pose to caption: with the hand anywhere in the workspace, or near one of the points."""
        aim, kind = one_of(things, random).position, random.random()
        far = in_line(aim, random) if kind < 0.2 else anywhere(random)
        position = far if kind < 0.5 else near(aim, 0.12, random)
        return Pose(position, turn(random), random.uniform(0, MAX_OPENING), things)

    def _distance(self) -> Array:
        return length(self._goal - self.arm.gripper_position)
