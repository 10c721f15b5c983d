"""Pick up a cube: grasp it and lift it clear of the table."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import ArraySpec, Observation
from robo_sims.arm.control import Motion
from robo_sims.arm.expert import Expert, ExpertFactory, turn_to_faces
from robo_sims.arm.physics import Arm, ArmPhysics, Array, FreeBody, Mask, length
from robo_sims.arm.rewards import Progress, closeness, share
from robo_sims.arm.tasks.task import ArmTask, fourfold, unit_spec, vector_spec, velocity_spec

HALF_SIZE = 0.025
"""[m] half the edge of the cube."""
REGION = np.array([[0.35, -0.20], [0.65, 0.20]])
"""[m] range of the cube's start position, frame base: 30 cm by 40 cm."""
LIFT = 0.10
"""[m] required lift of the cube."""
GRASP_RADIUS = 0.03
"""[m] maximum distance of a held cube's middle from the point between the finger pads"""

CUBE = f"""
<body name="object" pos="0.5 0 {HALF_SIZE}">
  <freejoint name="object"/>
  <geom name="object" type="box" size="{HALF_SIZE} {HALF_SIZE} {HALF_SIZE}" mass="0.1" contype="2" conaffinity="1"
        friction="0.6 0.005 0.0001" rgba="0.86 0.27 0.20 1"/>
</body>"""

OBJECT_ARRAYS = (
    vector_spec(
        "object_position",
        3,
        "object",
        f"x (forward), y (left), z (up) of the cube's middle; z is {HALF_SIZE} where it rests on the table",
    ),
    vector_spec(
        "object_from_gripper",
        3,
        "object",
        "from the point between the finger pads to the cube's middle: object_position - end_effector_position",
    ),
    unit_spec(
        "object_turn",
        2,
        "object",
        "(cos 4a, sin 4a) of the heading a from hand to cube: all four faces of a cube look alike",
        frame="hand",
    ),
    velocity_spec("object_velocity", "cube"),
)


class CubeTask(ArmTask):
    """A task with a cube, observed as OBJECT_ARRAYS."""

    def __init__(self, arm: Arm) -> None:
        super().__init__(arm)
        self.cube = FreeBody(arm, "object")

    @override
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        cube, arm = self.cube, self.arm
        return {
            "object_position": cube.position,
            "object_from_gripper": cube.position - arm.gripper_position,
            "object_turn": fourfold(cube.yaw - arm.gripper_yaw),
            "object_velocity": cube.velocity,
        }

    def distance(self) -> Array:
        """(...) [m] from the point between the finger pads to the cube's middle."""
        return length(self.cube.position - self.arm.gripper_position)


class PickExpert(Expert):
    """Hovers over the cube, aligns the fingers, descends, closes and lifts; starts over if the cube is lost."""

    def __init__(self, random: np.random.Generator) -> None:
        self._hover = random.uniform(0.06, 0.12)  # [m] above the cube's middle
        self._gain = random.uniform(0.6, 0.9)  # share of the way to go in one step
        self._grasp = np.array([*random.uniform(-0.004, 0.004, 2), random.uniform(-0.006, 0.006)])  # [m] off the middle
        self._patience = int(random.integers(4, 7))  # control steps for the fingers to close
        self._closing = 0

    @override
    def motion(self, observation: Observation) -> Motion:
        to_grasp = observation["object_from_gripper"] + self._grasp
        turn = turn_to_faces(observation, "object_turn")
        sideways = float(np.hypot(to_grasp[0], to_grasp[1]))
        reach = 0.025 if self._closing else 0.012  # [m] a cube that slips a little is not released
        if sideways < reach and abs(to_grasp[2]) < reach:
            return self._close_or_lift()
        self._closing = 0
        aligned = sideways < 0.008 and abs(turn) < 0.12
        inside = sideways < 0.012 and to_grasp[2] > -0.05  # the fingers already surround the cube
        height = 0.0 if aligned or inside else self._hover
        target = to_grasp + np.array([0.0, 0.0, height])
        return Motion(self._gain * target, self._gain * turn, opening=0.08)

    def _close_or_lift(self) -> Motion:
        self._closing += 1
        rise = 0.015 if self._closing > self._patience else 0.0
        return Motion(np.array([0.0, 0.0, rise]), 0.0, opening=0.0)


class Pick(CubeTask):
    """Lift a cube, anywhere in 30 cm by 40 cm at any yaw, by 10 cm and hold it."""

    bodies: ClassVar[str] = CUBE
    instruction: ClassVar[str] = "pick up the red cube"
    success_rule: ClassVar[str] = (
        "both finger pads touch the cube, its middle is within 3 cm of the point between them and at least 10 cm above where "
        "it rests on the table, for 3 control steps in a row"
    )
    max_steps: ClassVar[int] = 100
    held_steps: ClassVar[int] = 3
    grasps: ClassVar[bool] = True
    observation: ClassVar[tuple[ArraySpec, ...]] = OBJECT_ARRAYS
    expert: ClassVar[ExpertFactory] = PickExpert

    @override
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        """Draw position and yaw of the cube."""
        physics.place("object", (*random.uniform(*REGION), HALF_SIZE), random.uniform(-np.pi, np.pi))

    @override
    def holds(self) -> Mask:
        """Check contacts only where the cube is high."""
        lifted = self.cube.position[..., 2] >= HALF_SIZE + LIFT
        if not np.count_nonzero(lifted):
            return lifted
        return self.arm.is_grasping(self.cube.geom, lifted & (self.distance() < GRASP_RADIUS))

    @override
    def progress(self) -> Progress:
        """Return the closeness of the gripper, its grasp, and the height of the cube."""
        grasped = self.arm.is_grasping(self.cube.geom)
        height = (self.cube.position[..., 2] - HALF_SIZE) / LIFT
        return {
            "reach": closeness(self.distance(), 0.1),
            "grasp": np.asarray(grasped, np.float64),
            "lift": share(height) * grasped,
        }
