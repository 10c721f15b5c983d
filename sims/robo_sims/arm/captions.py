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

Truth = npt.NDArray[np.bool_]
"""Truth of a sentence in each of N states, (N,)."""

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
"""Word for a distance -> range [m] in which it is true, lower bound included."""


class States(NamedTuple):
    """True positions of gripper and objects in N states, from which captions are judged."""

    gripper: Array
    """Position of the point between the finger pads, (N, 3) [m], frame base."""
    things: Mapping[tuple[str, str], Array]
    """(colour, kind) -> (N, 3) [m], kinds "point", "cube" and "mark"; NaN if absent"""


@dataclass(frozen=True)
class Sentence:
    """Caption sentence, with the function that tells in which states it is true."""

    words: str
    holds: Callable[[States], Truth]


@dataclass(frozen=True)
class Instruction:
    """Task in words, with its progress (0 to 1) and completion."""

    wordings: tuple[str, ...]
    """Synonymous wordings; the first has the task's own style."""
    things: tuple[tuple[str, str], ...]
    """Colour and kind of each of the one or two objects that the instruction names."""
    progress: Callable[[States], Array]
    """(N,); 0 if a named object is absent"""
    complete: Callable[[States], Truth]


def distance(states: States, colour: str, kind: str) -> Array:
    """Return the distances (N,) [m] from the gripper to an object."""
    return np.asarray(np.linalg.norm(states.things[colour, kind] - states.gripper, axis=-1))


def nearness(length: Array) -> Array:
    """Return 1 at distance 0, falling linearly to 0 at FARTHEST; 0 if the distance is NaN."""
    return np.where(np.isfinite(length), np.clip(1 - length / FARTHEST, 0, 1), 0)


def between(value: Callable[[States], Array], limits: tuple[float, float], states: States) -> Truth:
    """Return, for N states, whether a length lies in a range.

    Args:
        value: Returns the lengths (N,) [m] of states.
        limits: Lower bound, included, and upper bound [m], excluded.
        states: States of N simulations.
    """
    values = value(states)
    return np.asarray((limits[0] <= values) & (values < limits[1]))


def near_sentences(kind: str) -> Iterator[Sentence]:
    """Yield caption sentences on the distance of the gripper from an object, each with its truth in a state."""
    for colour, (word, limits) in product(COLOURS, DISTANCES.items()):
        length = partial(distance, colour=colour, kind=kind)
        yield Sentence(f"the gripper is {word} the {colour} {kind}", partial(between, length, limits))
