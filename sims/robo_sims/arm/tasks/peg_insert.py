"""Insert a square peg into a square hole."""

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
    DISTANCES,
    Instruction,
    Sentence,
    States,
    Truth,
    between,
    near_sentences,
    nearness,
)
from robo_sims.arm.control import Motion
from robo_sims.arm.expert import Expert, ExpertFactory, turn_to_faces
from robo_sims.arm.physics import Arm, ArmPhysics, Array, Body, FreeBody, Mask
from robo_sims.arm.pose_sampling import Pose, Random, SceneObject, anywhere, one_of, several, turn
from robo_sims.arm.rewards import Progress, closeness, share
from robo_sims.arm.tasks.task import ArmTask, Kind, fourfold, unit_spec, vector_spec, velocity_spec

PEG = np.array([0.010, 0.010, 0.05])
"""[m] half edges of the peg: 2 cm by 2 cm by 10 cm."""
CLEARANCE = 0.0025
"""Gap [m] between peg and hole on each side."""
WALL = 0.02
"""Thickness [m] of the walls around the hole of the block."""
HEIGHT = 0.05
"""[m] height of the block with the hole."""
DEPTH = 0.03
"""Depth [m] of the peg's tip in the hole from which on the task counts as done."""
REGION = np.array([[0.42, -0.15], [0.62, 0.15]])
"""[m] range of the hole's position, frame base."""
TURN = 0.5
"""Largest yaw [rad] of the hole in either direction."""
GRASP = np.array([[-0.003, 0.0, 0.012], [0.003, 0.0, 0.028]])
"""[m] range of the peg's middle in the hand, along the hand's axes."""

BLOCKS = {**COLOURS, "blue": (0.25, 0.47, 0.68)}
"""Colour -> RGB of a block; the blue one is the task's own."""
_UP = np.array([0.0, 0.0, HEIGHT])


def _walls() -> str:
    inner, outer = PEG[0] + CLEARANCE, PEG[0] + CLEARANCE + WALL
    middle, half, z = (inner + outer) / 2, WALL / 2, HEIGHT / 2
    boxes = [(middle, 0, half, outer), (-middle, 0, half, outer), (0, middle, inner, half), (0, -middle, inner, half)]
    geom = '<geom type="box" pos="{} {} {z}" size="{} {} {z}" contype="1" conaffinity="0" rgba="0.25 0.47 0.68 1"/>'
    return "".join(geom.format(*box, z=z) for box in boxes)


class PegInsertExpert(Expert):
    """Expert that moves the peg over the hole, aligns and lowers it; goes up and tries again if it jams."""

    def __init__(self, random: np.random.Generator) -> None:
        self._gain = random.uniform(0.5, 0.8)  # share of the way to go in one step
        self._hover = random.uniform(0.012, 0.03)  # [m] of the tip above the block
        self._speed = random.uniform(0.008, 0.014)  # [m] down in one step, at the rim
        self._lowering = False

    @override
    def motion(self, observation: Observation) -> Motion:
        to_hole = observation["hole_from_peg"].astype(np.float64)  # from the peg's tip to the middle of the hole's rim
        turn = turn_to_faces(observation, "hole_turn")
        sideways = float(np.hypot(to_hole[0], to_hole[1]))
        inside = to_hole[2] > 0.002 and sideways < 0.008
        allowed = 0.0035 if self._lowering else 0.0018  # [m] start only when exact, continue until it clearly misses
        self._lowering = inside or (sideways < allowed and abs(turn) < 0.06)
        down = (-0.02 if inside else -self._speed) if self._lowering else self._gain * (to_hole[2] + self._hover)
        return Motion(np.array([*(self._gain * to_hole[:2]), down]), self._gain * turn, opening=0.0)


class PegInsert(ArmTask):
    """Insert a peg, held off its middle, into the hole of a block anywhere on the table."""

    bodies: ClassVar[str] = f"""
    <body name="hole" mocap="true" pos="0.5 0 0">{_walls()}</body>
    <body name="peg" pos="0.4 0 0.3">
      <freejoint name="peg"/>
      <geom name="peg" type="box" size="{PEG[0]} {PEG[1]} {PEG[2]}" mass="0.05" contype="2" conaffinity="1"
            friction="0.4 0.005 0.0001" rgba="0.95 0.68 0.20 1"/>
    </body>"""
    instruction: ClassVar[str] = "insert the yellow peg into the hole of the blue block"
    success_rule: ClassVar[str] = (
        "the peg's tip is at least 3 cm below the rim and inside the hole for 2 control steps in a row"
    )
    max_steps: ClassVar[int] = 100
    held_steps: ClassVar[int] = 2
    grasps: ClassVar[bool] = False
    observation: ClassVar[tuple[ArraySpec, ...]] = (
        vector_spec("peg_position", 3, "object", "x, y, z of the tip of the held peg"),
        unit_spec("peg_axis", 3, "object", "unit vector along the peg, away from its tip: (0, 0, 1) where the peg is upright"),
        vector_spec("hole_position", 3, "goal", "x, y, z of the middle of the hole's rim"),
        vector_spec(
            "hole_from_peg",
            3,
            "goal",
            "from the tip to the rim: hole_position - peg_position; z is the depth where the tip is inside",
        ),
        unit_spec(
            "hole_turn",
            2,
            "goal",
            "(cos 4a, sin 4a) of the heading a from peg to hole: all four faces of a square peg look alike",
            frame="peg",
        ),
        velocity_spec("peg_velocity", "peg"),
    )
    expert: ClassVar[ExpertFactory] = PegInsertExpert
    kinds: ClassVar[Mapping[str, Kind]] = {
        "block": Kind("hole", BLOCKS, turns=True),
        "peg": Kind("peg", {"yellow": (0.95, 0.68, 0.20)}, turns=True),
    }

    def __init__(self, arm: Arm) -> None:
        super().__init__(arm)
        self._peg = FreeBody(arm, "peg")
        self._hole = Body(arm, "hole")

    @override
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        """Draw the hole, and place the peg between the fingers, slightly off the middle."""
        physics.place("hole", (*random.uniform(*REGION), 0.0), random.uniform(-TURN, TURN))
        middle = physics.gripper_position + physics.gripper_matrix @ random.uniform(*GRASP)
        physics.place("peg", middle, float(physics.gripper_yaw))
        physics.hold(2 * PEG[1])

    @override
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        tip, rim = self._tip(), self._rim()
        return {
            "peg_position": tip,
            "peg_axis": self._peg.matrix[..., 2],
            "hole_position": rim,
            "hole_from_peg": rim - tip,
            "hole_turn": fourfold(self._hole.yaw - self._peg.yaw),
            "peg_velocity": self._peg.velocity,
        }

    @override
    def holds(self) -> Mask:
        sideways, depth = self._within()
        return (sideways < 2 * CLEARANCE) & (depth >= DEPTH)

    @override
    def progress(self) -> Progress:
        """Return the lateral closeness of the tip to the hole, and its depth."""
        sideways, depth = self._within()
        return {"align": closeness(sideways, 0.02), "insert": share(depth / DEPTH) * (sideways < 2 * CLEARANCE)}

    @staticmethod
    @override
    def instructions() -> Iterator[Instruction]:
        """Yield instructions to insert the peg.

        Half of their progress is the nearness of the peg's tip to the rim of the hole, half the depth inside.
        """

        def progress(states: States, colour: str) -> Array:
            to_rim = to_hole(states, colour)
            sideways, depth = np.hypot(to_rim[:, 0], to_rim[:, 1]), to_rim[:, 2]
            inside = np.clip(np.nan_to_num(depth) / DEPTH, 0, 1) * (sideways < 2 * CLEARANCE)
            return 0.5 * nearness(np.linalg.norm(to_rim, axis=-1)) + 0.5 * inside

        def complete(states: States, colour: str) -> Truth:
            to_rim = to_hole(states, colour)
            return np.asarray((np.hypot(to_rim[:, 0], to_rim[:, 1]) < 2 * CLEARANCE) & (to_rim[:, 2] >= DEPTH))

        for colour in BLOCKS:
            yield Instruction(
                (f"insert the yellow peg into the hole of the {colour} block", f"put the yellow peg into the {colour} block"),
                (("yellow", "peg"), (colour, "block")),
                partial(progress, colour=colour),
                partial(complete, colour=colour),
            )

    @staticmethod
    @override
    def descriptions() -> Iterator[Sentence]:
        return chain(near_sentences("block"), tip_sentences())

    @staticmethod
    @override
    def scene(random: Random) -> tuple[SceneObject, ...]:
        """Return one or two blocks on the table, and a peg."""
        blocks = several("block", "blue", REGION, random, apart=0.12, height=0.0)
        turned = [replace(each, yaw=random.uniform(-TURN, TURN)) for each in blocks]
        return (*turned, SceneObject("peg", "yellow", np.zeros(3)))

    @staticmethod
    @override
    def pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a hand that holds the peg anywhere, near the rim of a block, or in its hole."""
        *blocks, peg = things
        block, kind = one_of(blocks, random), random.random()
        rim, offset, yaw = block.position + _UP, random.uniform(*GRASP), block.yaw
        if kind < 0.3:
            place, yaw = anywhere(random), turn(random)
            tip = np.array([*place[:2], max(place[2], 2 * HEIGHT)])
        elif kind < 0.65:
            tip = rim + np.array([*random.normal(0, 0.02, 2), random.uniform(0, 0.08)])
        else:
            tip = rim + np.array([*random.uniform(-CLEARANCE, CLEARANCE, 2), -random.uniform(0, HEIGHT)])
        middle = tip + np.array([0, 0, PEG[2]])
        return Pose(middle - np.array([0, 0, offset[2]]), yaw, 2 * PEG[1], (*blocks, replace(peg, position=middle, yaw=yaw)))

    @classmethod
    @override
    def start(cls, things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a state in which an episode begins: the hand holds the peg."""
        *blocks, peg = things
        free = super().start(things, random)
        held = replace(peg, position=free.gripper + np.array([0, 0, random.uniform(*GRASP)[2]]), yaw=free.yaw)
        return replace(free, opening=2 * PEG[1], things=(*blocks, held))

    def _within(self) -> tuple[Array, Array]:
        """Return the distance (...) [m] of the tip from the axis of the hole, and its depth below the rim."""
        below = self._rim() - self._tip()
        return np.hypot(below[..., 0], below[..., 1]), below[..., 2]

    def _tip(self) -> Array:
        tip: Array = self._peg.position - PEG[2] * self._peg.matrix[..., 2]
        return tip

    def _rim(self) -> Array:
        rim: Array = self._hole.position + _UP
        return rim


def to_hole(states: States, colour: str) -> Array:
    """Return the way (N, 3) [m] from the peg's tip to the middle of the rim of a block's hole.

    z is the depth of the tip inside the hole.

    states: States of N simulations.
    colour: Colour of the block.
    """
    tip = states.things["yellow", "peg"] - np.array([0, 0, PEG[2]])
    return np.asarray(states.things[colour, "block"] + _UP - tip)


def tip_sentences() -> Iterator[Sentence]:
    """Yield caption sentences on the distance of the peg's tip from a block's hole, each with its truth in a state."""

    def gap(states: States, colour: str) -> Array:
        return np.asarray(np.linalg.norm(to_hole(states, colour), axis=-1))

    for colour, (word, limits) in product(BLOCKS, DISTANCES.items()):
        words = f"the tip of the yellow peg is {word} the hole of the {colour} block"
        yield Sentence(words, partial(between, partial(gap, colour=colour), limits))
