"""Task `ArmPush`: push a cube across the table onto a mark."""

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
    distance,
    near_sentences,
    nearness,
)
from robo_sims.arm.control import Motion
from robo_sims.arm.expert import Expert, ExpertFactory, heading, wrap
from robo_sims.arm.physics import MAX_OPENING, Arm, ArmPhysics, Array, Body, Mask, length
from robo_sims.arm.pose_sampling import Pose, Random, SceneObject, anywhere, in_line, one_of, several, turn
from robo_sims.arm.rewards import Progress, closeness
from robo_sims.arm.tasks.pick import CUBE, CUBE_KIND, CUBES_APART, HALF_SIZE, OBJECT_ARRAYS, CubeTask, clear, height
from robo_sims.arm.tasks.task import Kind, vector_spec

REGION = np.array([[0.40, -0.16], [0.60, 0.16]])
"""[m] range of cube and mark, frame base."""
DISTANCE = np.array([0.10, 0.20])
"""[m] minimum and maximum start distance of cube and mark."""
MARK_HEIGHT = 0.001
"""Height [m] at which the mark is drawn above the table, so that the table does not hide it."""
TOLERANCE = 0.03
"""Largest horizontal distance [m] of the cube's middle from the mark at success."""


class PushExpert(Expert):
    """Expert that goes behind the cube, lowers the fingers and pushes it to the mark; goes round again if it slips."""

    def __init__(self, random: np.random.Generator) -> None:
        self._gain = random.uniform(0.6, 0.9)  # share of the way to go in one step
        self._stand_off = random.uniform(0.065, 0.085)  # [m] behind the cube's middle before pushing
        self._height = random.uniform(0.018, 0.026)  # [m] of the fingers while pushing
        self._speed = random.uniform(0.010, 0.014)  # [m] forward in one step of pushing
        self._opening = random.uniform(0.035, 0.05)  # [m] two contact points keep the cube from turning

    @override
    def motion(self, observation: Observation) -> Motion:
        way, remaining = _direction(observation["goal_from_object"].astype(np.float64))
        from_cube = -observation["object_from_gripper"][:2].astype(np.float64)
        ahead = float(from_cube @ way)  # [m] negative behind the cube
        beside = from_cube - ahead * way
        turn = _turn_across(way, heading(observation))
        is_low = observation["end_effector_position"][2] < 0.035
        if is_low and ahead < -0.02 and float(np.linalg.norm(beside)) < 0.015 and abs(turn) < 0.3:
            forward = min(self._speed, 0.004 + 0.25 * (remaining - ahead - 0.04))  # slow down as the cube nears the mark
            return self._motion(observation, forward * way - 0.5 * beside, turn, self._height)
        return self._go_behind(observation, -self._stand_off * way - from_cube, turn, is_low)

    def _go_behind(self, observation: Observation, to_start: Array, turn: float, is_low: bool) -> Motion:
        distance = float(np.linalg.norm(to_start))
        if (distance < 0.012 and abs(turn) < 0.15) or (is_low and distance < 0.02):
            return self._motion(observation, self._gain * to_start, turn, self._height)
        is_clear = observation["end_effector_position"][2] > 0.09  # first up, then across
        return self._motion(observation, self._gain * to_start * is_clear, turn, 0.11)

    def _motion(self, observation: Observation, across: Array, turn: float, height: float) -> Motion:
        up = self._gain * (height - observation["end_effector_position"][2])
        return Motion(np.array([*across, up]), self._gain * turn, self._opening)


def _direction(vector: Array) -> tuple[Array, float]:
    length = float(np.linalg.norm(vector))
    return vector / max(length, 1e-6), length


def _turn_across(way: Array, yaw: float) -> float:
    """Return the turn [rad] that brings the interchangeable fingers across the path, within the wrist's range."""
    turn = wrap(float(np.arctan2(way[1], way[0])) - yaw, np.pi)
    return turn if abs(yaw + turn) < 1.7 else turn - float(np.copysign(np.pi, turn))


class Push(CubeTask):
    """Push a cube onto a mark 10 to 20 cm away on the table."""

    bodies: ClassVar[str] = (
        CUBE
        + f"""
    <body name="goal" mocap="true" pos="0.5 0 {MARK_HEIGHT}">
      <geom name="goal" type="cylinder" size="0.03 0.0008" contype="0" conaffinity="0" group="1" rgba="0.15 0.65 0.35 1"/>
    </body>"""
    )
    instruction: ClassVar[str] = "push the red cube onto the green mark"
    success_rule: ClassVar[str] = (
        "the cube's middle is within 3 cm of the mark, along the table, and the cube rests on the table"
    )
    max_steps: ClassVar[int] = 150
    grasps: ClassVar[bool] = False
    observation: ClassVar[tuple[ArraySpec, ...]] = (
        *OBJECT_ARRAYS,
        vector_spec("goal_position", 2, "goal", "x (forward), y (left) of the middle of the mark on the table"),
        vector_spec(
            "goal_from_object",
            2,
            "goal",
            "from the cube's middle to the mark along the table: goal_position - object_position[:2]",
        ),
    )
    expert: ClassVar[ExpertFactory] = PushExpert
    kinds: ClassVar[Mapping[str, Kind]] = {"cube": CUBE_KIND, "mark": Kind("goal", COLOURS)}

    def __init__(self, arm: Arm) -> None:
        super().__init__(arm)
        self._mark = Body(arm, "goal").position

    @override
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        """Draw a cube and a mark at an allowed distance."""
        cube, mark = _draw_pair(random)
        physics.place("object", (*cube, HALF_SIZE), random.uniform(-np.pi, np.pi))
        physics.place("goal", (*mark, MARK_HEIGHT))

    @override
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        return {**super().observe(), "goal_position": self._mark[..., :2], "goal_from_object": self._to_mark()}

    @override
    def holds(self) -> Mask:
        on_table = self.cube.position[..., 2] < HALF_SIZE + 0.005
        return on_table & (length(self._to_mark()) < TOLERANCE)

    @override
    def progress(self) -> Progress:
        """Return the progress of reaching the cube and pushing it to the mark, part -> 0 to 1."""
        return {"reach": closeness(self.distance(), 0.1), "push": closeness(length(self._to_mark()), 0.1)}

    @staticmethod
    @override
    def instructions() -> Iterator[Instruction]:
        """Yield instructions to push a cube; progress is 0.3 nearness of hand and cube, 0.7 of cube and mark."""

        def progress(states: States, cube: str, mark: str) -> Array:
            both = np.isfinite(to_mark(states, cube, mark))
            return both * (0.3 * nearness(distance(states, cube, "cube")) + 0.7 * nearness(to_mark(states, cube, mark)))

        def complete(states: States, cube: str, mark: str) -> Truth:
            return (to_mark(states, cube, mark) < TOLERANCE) & (height(states, cube) < 0.005)

        for cube, mark in product(COLOURS, COLOURS):
            yield Instruction(
                (f"push the {cube} cube onto the {mark} mark", f"move the {cube} cube to the {mark} mark"),
                ((cube, "cube"), (mark, "mark")),
                partial(progress, cube=cube, mark=mark),
                partial(complete, cube=cube, mark=mark),
            )

    @staticmethod
    @override
    def descriptions() -> Iterator[Sentence]:
        return chain(near_sentences("cube"), mark_sentences())

    @staticmethod
    @override
    def scene(random: Random) -> tuple[SceneObject, ...]:
        """Return one or two cubes and one or two marks on the table."""
        cubes = several("cube", "red", REGION, random, apart=CUBES_APART, height=HALF_SIZE)
        marks = several("mark", "green", REGION, random, apart=0.08, height=MARK_HEIGHT)
        return (*cubes, *marks)

    @staticmethod
    @override
    def pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a hand anywhere or next to a cube at its start, on its way or at the mark."""
        cubes = [each for each in things if each.kind == "cube"]
        marks = [each for each in things if each.kind == "mark"]
        cube, mark = one_of(cubes, random), one_of(marks, random)
        if random.random() < 0.7:
            way = mark.position - cube.position
            share = random.uniform(0, 1.1) if random.random() < 0.7 else 1.0
            position = cube.position + share * way + np.array([*random.normal(0, 0.02, 2), 0])
            moved = replace(cube, position=np.array([*position[:2], HALF_SIZE]), yaw=cube.yaw + random.normal(0, 0.3))
        else:
            moved = cube
        there = tuple(moved if each is cube else each for each in things)
        if (kind := random.random()) < 0.4:
            place = anywhere(random) if kind < 0.2 else in_line(moved.position, random)
            return clear(Pose(place, turn(random), random.uniform(0, MAX_OPENING), there))
        angle, gap = random.uniform(-np.pi, np.pi), random.uniform(0.04, 0.10)
        close_by = moved.position + np.array([gap * np.cos(angle), gap * np.sin(angle), 0])
        low = np.array([*close_by[:2], random.uniform(0.015, 0.06) if random.random() < 0.7 else random.uniform(0.06, 0.15)])
        return Pose(low, turn(random), random.uniform(0.02, MAX_OPENING), there)

    def _to_mark(self) -> Array:
        return self._mark[..., :2] - self.cube.position[..., :2]


def _draw_pair(random: np.random.Generator) -> tuple[Array, Array]:
    while True:
        cube, mark = random.uniform(*REGION), random.uniform(*REGION)
        if DISTANCE[0] <= np.linalg.norm(mark - cube) <= DISTANCE[1]:
            return cube, mark


def to_mark(states: States, cube: str, mark: str) -> Array:
    """Return the distances (N,) [m] from a cube to a mark, along the table."""
    return np.asarray(np.linalg.norm((states.things[mark, "mark"] - states.things[cube, "cube"])[:, :2], axis=-1))


def mark_sentences() -> Iterator[Sentence]:
    """Yield caption sentences on the distance of a cube from a mark, each with its truth in a state."""
    for cube, mark, (word, limits) in product(COLOURS, COLOURS, DISTANCES.items()):
        length = partial(to_mark, cube=cube, mark=mark)
        yield Sentence(f"the {cube} cube is {word} the {mark} mark", partial(between, length, limits))
