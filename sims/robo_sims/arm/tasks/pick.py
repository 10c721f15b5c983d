"""Pick up a cube: grasp it and lift it clear of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import ArraySpec, Observation
from robo_sims.arm.captions import (
    COLOURS,
    Instruction,
    Sentence,
    States,
    Truth,
    between,
    distance,
    near_sentences,
    nearness,
)
from robo_sims.arm.control import WORKSPACE, Motion
from robo_sims.arm.expert import Expert, ExpertFactory, turn_to_faces
from robo_sims.arm.physics import MAX_OPENING, Arm, ArmPhysics, Array, FreeBody, Mask, length
from robo_sims.arm.pose_sampling import Pose, Random, SceneObject, along, anywhere, in_line, one_of, several, turn
from robo_sims.arm.rewards import Progress, closeness, share
from robo_sims.arm.tasks.task import ArmTask, Kind, fourfold, unit_spec, vector_spec, velocity_spec

HALF_SIZE = 0.025
"""[m] half the edge of the cube."""
REGION = np.array([[0.35, -0.20], [0.65, 0.20]])
"""[m] range of the cube's start position, frame base: 30 cm by 40 cm."""
LIFT = 0.10
"""[m] required lift of the cube."""
GRASP_RADIUS = 0.03
"""[m] maximum distance of a held cube's middle from the point between the finger pads"""
HEIGHTS: Mapping[str, tuple[float, float]] = {
    "on the table": (-np.inf, 0.01),
    "just above the table": (0.01, 0.04),
    "above the table": (0.04, 0.07),
    "well above the table": (0.07, LIFT),
    "high above the table": (LIFT, np.inf),
}
"""Words for the height of a cube -> lowest and highest rise [m] above the table for which they are true."""
CUBES_APART = 0.09
"""Least distance [m] between two cubes of a caption scene."""
CUBE_KIND = Kind("object", COLOURS, turns=True)

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
    """Base class of tasks with a cube, whose pose and velocity are observed as OBJECT_ARRAYS."""

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
        """Return the distance (...) [m] from the point between the finger pads to the cube's middle."""
        return length(self.cube.position - self.arm.gripper_position)


class PickExpert(Expert):
    """Expert that hovers over the cube, aligns the fingers, grasps and lifts; starts over if the cube is lost."""

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
    kinds: ClassVar[Mapping[str, Kind]] = {"cube": CUBE_KIND}

    @override
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        """Place the cube on the table at a random position and yaw."""
        physics.place("object", (*random.uniform(*REGION), HALF_SIZE), random.uniform(-np.pi, np.pi))

    @override
    def holds(self) -> Mask:
        """Return whether the cube is held high enough; contacts are checked only where it is high."""
        lifted = self.cube.position[..., 2] >= HALF_SIZE + LIFT
        if not np.count_nonzero(lifted):
            return lifted
        return self.arm.is_grasping(self.cube.geom, lifted & (self.distance() < GRASP_RADIUS))

    @override
    def progress(self) -> Progress:
        """Return the progress of reaching, grasping and lifting the cube, part -> 0 to 1."""
        grasped = self.arm.is_grasping(self.cube.geom)
        height = (self.cube.position[..., 2] - HALF_SIZE) / LIFT
        return {
            "reach": closeness(self.distance(), 0.1),
            "grasp": np.asarray(grasped, np.float64),
            "lift": share(height) * grasped,
        }

    @staticmethod
    @override
    def instructions() -> Iterator[Instruction]:
        """Yield instructions to pick a cube up; progress is half nearness of the hand, half height of the cube."""

        def progress(states: States, colour: str) -> Array:
            lifted = np.clip(np.nan_to_num(height(states, colour)) / LIFT, 0, 1)
            return 0.5 * nearness(distance(states, colour, "cube")) + 0.5 * lifted

        def complete(states: States, colour: str) -> Truth:
            return (height(states, colour) >= LIFT) & (distance(states, colour, "cube") < GRASP_RADIUS)

        for colour in COLOURS:
            yield Instruction(
                (f"pick up the {colour} cube", f"lift the {colour} cube", f"grasp the {colour} cube and raise it"),
                ((colour, "cube"),),
                partial(progress, colour=colour),
                partial(complete, colour=colour),
            )

    @staticmethod
    @override
    def descriptions() -> Iterator[Sentence]:
        return chain(near_sentences("cube"), height_sentences())

    @staticmethod
    @override
    def scene(random: Random) -> tuple[SceneObject, ...]:
        """Return one or two cubes on the table."""
        return several("cube", "red", REGION, random, apart=CUBES_APART, height=HALF_SIZE)

    @staticmethod
    @override
    def pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a hand anywhere, above or around a cube, or holding one at any height."""
        chosen, kind = one_of(things, random), random.random()
        if kind < 0.35:
            place = anywhere(random) if kind < 0.15 else in_line(chosen.position, random)
            return clear(Pose(place, turn(random), random.uniform(0, MAX_OPENING), things))
        if kind < 0.65:
            return _over(chosen, things, random)
        held = replace(chosen, position=_held_at(chosen, random))
        grip = held.position + np.array([*random.uniform(-0.005, 0.005, 2), random.uniform(-0.008, 0.008)])
        others = tuple(held if each is chosen else each for each in things)
        yaw = along(chosen.yaw, random)
        return Pose(grip, yaw, 2 * HALF_SIZE, others)


def height(states: States, colour: str) -> Array:
    """Return the heights (N,) [m] of a cube above the table."""
    return np.asarray(states.things[colour, "cube"][:, 2] - HALF_SIZE)


def height_sentences() -> Iterator[Sentence]:
    """Yield caption sentences on the height of a cube, each with its truth in a state."""
    for colour, (words, limits) in product(COLOURS, HEIGHTS.items()):
        yield Sentence(f"the {colour} cube is {words}", partial(between, partial(height, colour=colour), limits))


def _over(cube: SceneObject, things: tuple[SceneObject, ...], random: Random) -> Pose:
    """Return an open hand around or above a cube, aligned with its faces when low."""
    above = random.uniform(0, 0.14)
    sideways = random.normal(0, 0.004 + 0.35 * max(above - 0.04, 0), 2)
    yaw = along(cube.yaw, random) if above < 0.06 else turn(random)
    return Pose(cube.position + np.array([*sideways, above]), yaw, random.uniform(0.065, MAX_OPENING), things)


def _held_at(cube: SceneObject, random: Random) -> Array:
    """Return the position of a held cube: near its start and raised, or anywhere."""
    up = random.uniform(0, 0.2) if random.random() < 0.7 else 0.0
    if random.random() < 0.5:
        return np.asarray(cube.position + np.array([*random.normal(0, 0.02, 2), up]))
    return np.array([*random.uniform(*WORKSPACE)[:2], HALF_SIZE + up])


def clear(pose: Pose) -> Pose:
    """Return the pose, with the gripper 9 cm higher if it would be inside a cube."""
    places = [each.position for each in pose.things if each.kind == "cube"]
    inside = any(np.linalg.norm(pose.gripper[:2] - place[:2]) < 0.07 and pose.gripper[2] < 0.09 for place in places)
    return replace(pose, gripper=pose.gripper + np.array([0, 0, 0.09])) if inside else pose
