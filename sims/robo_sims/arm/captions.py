"""Sentences about a picture of an arm task, and their truth conditions.

Every sentence has a predicate on the simulator's state: a caption cannot disagree with its picture, and a counterfactual one is
provably false. An absent object has position NaN: no sentence about it is true. N is the number of states.
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
"""RGB of the objects; the tasks themselves use red cubes and green goals."""
FARTHEST = 0.5
"""[m] distance at which the progress of an approach is 0."""
DISTANCES: Mapping[str, tuple[float, float]] = {
    "at": (0.0, 0.02),
    "very close to": (0.02, 0.05),
    "close to": (0.05, 0.10),
    "near": (0.10, 0.17),
    "away from": (0.17, 0.27),
    "far from": (0.27, np.inf),
}
"""[m] range of each word, lower bound included."""
HEIGHTS: Mapping[str, tuple[float, float]] = {
    "on the table": (-np.inf, 0.01),
    "just above the table": (0.01, 0.04),
    "above the table": (0.04, 0.07),
    "well above the table": (0.07, pick.LIFT),
    "high above the table": (pick.LIFT, np.inf),
}
"""[m] that a cube has risen."""


class States(NamedTuple):
    """Ground truth of N states."""

    gripper: Array
    """(N, 3) [m] of the point between the finger pads, frame base"""
    things: Mapping[tuple[str, str], Array]
    """(colour, kind) -> (N, 3) [m], kinds "point", "cube" and "mark"; NaN if absent"""


@dataclass(frozen=True)
class Sentence:
    """Caption and its truth condition."""

    words: str
    holds: Callable[[States], Truth]


@dataclass(frozen=True)
class Instruction:
    """Task in words, with its progress (0 to 1) and completion."""

    wordings: tuple[str, ...]
    """Synonymous wordings; the first has the task's own style."""
    things: tuple[tuple[str, str], ...]
    """(colour, kind) of the one or two objects it names."""
    progress: Callable[[States], Array]
    """(N,); 0 if a named object is absent"""
    complete: Callable[[States], Truth]


def distance(states: States, colour: str, kind: str) -> Array:
    """Return the distances (N,) [m] from the gripper to an object."""
    return np.asarray(np.linalg.norm(states.things[colour, kind] - states.gripper, axis=-1))


def nearness(length: Array) -> Array:
    """Return 1 at distance 0, falling linearly to 0 at FARTHEST; 0 if the distance is NaN."""
    return np.where(np.isfinite(length), np.clip(1 - length / FARTHEST, 0, 1), 0)


def height(states: States, colour: str) -> Array:
    """Return the heights (N,) [m] of a cube above the table."""
    return np.asarray(states.things[colour, "cube"][:, 2] - pick.HALF_SIZE)


def to_mark(states: States, cube: str, mark: str) -> Array:
    """Return the distances (N,) [m] from a cube to a mark, along the table."""
    return np.asarray(np.linalg.norm((states.things[mark, "mark"] - states.things[cube, "cube"])[:, :2], axis=-1))


def reach_instructions() -> Iterator[Instruction]:
    """Yield instructions to reach a point; progress is the nearness of the gripper."""

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
    """Yield instructions to pick a cube up; progress is half nearness of the hand, half height of the cube."""

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
    """Yield instructions to push a cube; progress is 0.3 nearness of hand and cube, 0.7 of cube and mark."""

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
    """Yield sentences on the distance of the gripper from an object."""
    for colour, (word, limits) in product(COLOURS, DISTANCES.items()):
        length = partial(distance, colour=colour, kind=kind)
        yield Sentence(f"the gripper is {word} the {colour} {kind}", partial(_between, length, limits))


def height_sentences() -> Iterator[Sentence]:
    """Yield sentences on the height of a cube."""
    for colour, (words, limits) in product(COLOURS, HEIGHTS.items()):
        yield Sentence(f"the {colour} cube is {words}", partial(_between, partial(height, colour=colour), limits))


def mark_sentences() -> Iterator[Sentence]:
    """Yield sentences on the distance of a cube from a mark."""
    for cube, mark, (word, limits) in product(COLOURS, COLOURS, DISTANCES.items()):
        length = partial(to_mark, cube=cube, mark=mark)
        yield Sentence(f"the {cube} cube is {word} the {mark} mark", partial(_between, length, limits))


@dataclass(frozen=True)
class Grammar:
    """Instructions and descriptions of one task."""

    kinds: tuple[str, ...]
    """Kinds of coloured objects."""
    instructions: tuple[Instruction, ...]
    descriptions: tuple[Sentence, ...]

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Descriptions, and instructions as sentences that are true once they are complete."""
        done = [Sentence(words, each.complete) for each in self.instructions for words in each.wordings]
        return (*self.descriptions, *done)


GRAMMARS: Mapping[str, Grammar] = {
    "ArmReach-v0": Grammar(("point",), (*reach_instructions(),), (*near_sentences("point"),)),
    "ArmPick-v0": Grammar(("cube",), (*pick_instructions(),), (*near_sentences("cube"), *height_sentences())),
    "ArmPush-v0": Grammar(("cube", "mark"), (*push_instructions(),), (*near_sentences("cube"), *mark_sentences())),
}
"""Task -> grammar."""
