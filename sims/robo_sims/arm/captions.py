"""Sentences about a picture of an arm task, and their truth conditions.

Every sentence has a predicate on the simulator's state, so that a caption cannot disagree with the picture, and a
counterfactual one is provably false. A thing that is not in the scene has the position NaN: nothing is true of it.

N states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robo_sims.arm.physics import Array
from robo_sims.arm.tasks import pick, push, reach

Truth = npt.NDArray[np.bool_]
"""(N,)"""

COLOURS: Mapping[str, tuple[float, float, float]] = {
    "red": (0.86, 0.27, 0.20),
    "green": (0.15, 0.65, 0.35),
    "blue": (0.16, 0.38, 0.80),
    "purple": (0.58, 0.25, 0.66),
}
"""RGB of the things; the tasks' own are red cubes and green goals."""
FARTHEST = 0.5
"""[m] distance at which nothing is done yet of bringing two things together."""
DISTANCES: Mapping[str, tuple[float, float]] = {
    "at": (0.0, 0.02),
    "very close to": (0.02, 0.05),
    "close to": (0.05, 0.10),
    "near": (0.10, 0.17),
    "away from": (0.17, 0.27),
    "far from": (0.27, np.inf),
}
"""[m] of the words, the lower bound included."""
HEIGHTS: Mapping[str, tuple[float, float]] = {
    "on the table": (-np.inf, 0.01),
    "just above the table": (0.01, 0.04),
    "above the table": (0.04, 0.07),
    "well above the table": (0.07, pick.LIFT),
    "high above the table": (pick.LIFT, np.inf),
}
"""[m] that a cube has risen."""


class States(NamedTuple):
    """Simulator's facts of N states."""

    gripper: Array
    """(N, 3) [m] of the point between the finger pads, frame base"""
    things: Mapping[tuple[str, str], Array]
    """(colour, kind) -> (N, 3) [m], kinds "point", "cube" and "mark"; NaN if there is none"""


@dataclass(frozen=True)
class Sentence:
    """Words, and the states of which they are true."""

    words: str
    holds: Callable[[States], Truth]


@dataclass(frozen=True)
class Instruction:
    """A task in words, how far it is done, from 0 to 1, and whether it is."""

    wordings: tuple[str, ...]
    """That mean the same; the first is the task's own style."""
    things: tuple[tuple[str, str], ...]
    """(colour, kind) of what it names, one or two."""
    progress: Callable[[States], Array]
    """(N,); 0 if something that it names is not there"""
    complete: Callable[[States], Truth]


def distance(states: States, colour: str, kind: str) -> Array:
    """Returns (N,) [m] from the gripper to a thing."""
    return np.asarray(np.linalg.norm(states.things[colour, kind] - states.gripper, axis=-1))


def nearness(length: Array) -> Array:
    """Returns 1 at distance 0, falling in proportion to 0 at FARTHEST; 0 if the distance is unknown."""
    return np.where(np.isfinite(length), np.clip(1 - length / FARTHEST, 0, 1), 0)


def height(states: States, colour: str) -> Array:
    """Returns (N,) [m] that a cube has risen from the table."""
    return np.asarray(states.things[colour, "cube"][:, 2] - pick.HALF_SIZE)


def to_mark(states: States, cube: str, mark: str) -> Array:
    """Returns (N,) [m] from a cube to a mark, along the table."""
    return np.asarray(np.linalg.norm((states.things[mark, "mark"] - states.things[cube, "cube"])[:, :2], axis=-1))


def reach_instructions() -> Iterator[Instruction]:
    """Bring the gripper to a point: the nearness."""

    def progress(states: States, colour: str) -> Array:
        return nearness(distance(states, colour, "point"))

    def complete(states: States, colour: str) -> Truth:
        return distance(states, colour, "point") < reach.TOLERANCE

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


def pick_instructions() -> Iterator[Instruction]:
    """Pick a cube up: half for the nearness of the hand, half for the height of the cube."""

    def progress(states: States, colour: str) -> Array:
        lifted = np.clip(np.nan_to_num(height(states, colour)) / pick.LIFT, 0, 1)
        return 0.5 * nearness(distance(states, colour, "cube")) + 0.5 * lifted

    def complete(states: States, colour: str) -> Truth:
        return (height(states, colour) >= pick.LIFT) & (distance(states, colour, "cube") < pick.GRASP_RADIUS)

    for colour in COLOURS:
        yield Instruction(
            (f"pick up the {colour} cube", f"lift the {colour} cube", f"grasp the {colour} cube and raise it"),
            ((colour, "cube"),),
            partial(progress, colour=colour),
            partial(complete, colour=colour),
        )


def push_instructions() -> Iterator[Instruction]:
    """Push a cube onto a mark: three tenths for the nearness of hand and cube, seven for that of cube and mark."""

    def progress(states: States, cube: str, mark: str) -> Array:
        both = np.isfinite(to_mark(states, cube, mark))
        return both * (0.3 * nearness(distance(states, cube, "cube")) + 0.7 * nearness(to_mark(states, cube, mark)))

    def complete(states: States, cube: str, mark: str) -> Truth:
        return (to_mark(states, cube, mark) < push.TOLERANCE) & (height(states, cube) < 0.005)

    for cube, mark in product(COLOURS, COLOURS):
        yield Instruction(
            (f"push the {cube} cube onto the {mark} mark", f"move the {cube} cube to the {mark} mark"),
            ((cube, "cube"), (mark, "mark")),
            partial(progress, cube=cube, mark=mark),
            partial(complete, cube=cube, mark=mark),
        )


def _between(value: Callable[[States], Array], limits: tuple[float, float], states: States) -> Truth:
    values = value(states)
    return np.asarray((limits[0] <= values) & (values < limits[1]))


def near_sentences(kind: str) -> Iterator[Sentence]:
    """Position of the gripper relative to an object."""
    for colour, (word, limits) in product(COLOURS, DISTANCES.items()):
        length = partial(distance, colour=colour, kind=kind)
        yield Sentence(f"the gripper is {word} the {colour} {kind}", partial(_between, length, limits))


def height_sentences() -> Iterator[Sentence]:
    """Height of a cube."""
    for colour, (words, limits) in product(COLOURS, HEIGHTS.items()):
        yield Sentence(f"the {colour} cube is {words}", partial(_between, partial(height, colour=colour), limits))


def mark_sentences() -> Iterator[Sentence]:
    """Position of a cube relative to a mark."""
    for cube, mark, (word, limits) in product(COLOURS, COLOURS, DISTANCES.items()):
        length = partial(to_mark, cube=cube, mark=mark)
        yield Sentence(f"the {cube} cube is {word} the {mark} mark", partial(_between, length, limits))


@dataclass(frozen=True)
class Grammar:
    """All that can be said about one task."""

    kinds: tuple[str, ...]
    """Of things that have a colour."""
    instructions: tuple[Instruction, ...]
    descriptions: tuple[Sentence, ...]

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Descriptions, and instructions, which are true of a state where they are done."""
        done = [Sentence(words, each.complete) for each in self.instructions for words in each.wordings]
        return (*self.descriptions, *done)


GRAMMARS: Mapping[str, Grammar] = {
    "ArmReach-v0": Grammar(("point",), (*reach_instructions(),), (*near_sentences("point"),)),
    "ArmPick-v0": Grammar(("cube",), (*pick_instructions(),), (*near_sentences("cube"), *height_sentences())),
    "ArmPush-v0": Grammar(("cube", "mark"), (*push_instructions(),), (*near_sentences("cube"), *mark_sentences())),
}
"""By task."""
