"""Cells of a grid world as integers, so that many grids are one array.

bits 0-3 kind, 4-6 colour, 7-8 state: the look of the cell, with MiniGrid's numbers
bits 9-17 look of the content (boxes), 18 set if picking it up ends the episode
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

Array = npt.NDArray[Any]
Cells = npt.NDArray[np.int32]
Cell = TypeVar("Cell", int, Array)
"""One cell (int), or an array of cells."""
Encoding = Literal["codes", "one-hot"]

LOOKS = 512
"""Number of looks; `cell & LOOKS - 1` is the look of a cell."""
CONTENT_SHIFT = 9
TARGET = 1 << 18

OPEN, CLOSED, LOCKED = (STATE_TO_IDX[name] for name in ("open", "closed", "locked"))
UNSEEN, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = (
    OBJECT_TO_IDX[name] for name in ("unseen", "floor", "door", "key", "ball", "box", "goal", "lava")
)
EMPTY = OBJECT_TO_IDX["empty"]
WALL = OBJECT_TO_IDX["wall"] | COLOR_TO_IDX["grey"] << 4

SEEN_KINDS = ("unseen", "wall", "floor", "door", "key", "ball", "box", "goal", "lava")
"""Kinds with a channel in a one-hot view; an empty cell has 0 in all channels."""
COLOURS = tuple(sorted(COLOR_TO_IDX, key=lambda name: COLOR_TO_IDX[name]))
COLOURED = ("floor", "door", "key", "ball", "box")
"""Kinds with different colours; walls, goals and lava have one colour each."""
STATES = ("open", "closed", "locked")


def look_of(kind: Any, colour: Any, state: Any) -> Any:
    """Return the looks of cells with given kind, colour and state (MiniGrid's numbers)."""
    return kind | colour << 4 | state << 7


def kind_of(cells: Cell) -> Cell:
    """Return the kinds (OBJECT_TO_IDX) of cells."""
    return cells & 15


def colour_of(cells: Cell) -> Cell:
    """Return the colours (COLOR_TO_IDX) of cells."""
    return cells >> 4 & 7


def state_of(cells: Cell) -> Cell:
    """Return the states (STATE_TO_IDX) of cells."""
    return cells >> 7 & 3


def cells_of(environment: Any) -> Cells:
    """Return the cells (W, H) of a MiniGrid environment, indexed by x, then y."""
    grid, target = environment.grid, getattr(environment, "obj", None)
    rows = [EMPTY if thing is None else _cell(thing, target) for thing in grid.grid]
    return np.array(rows, np.int32).reshape(grid.height, grid.width).T


def cell_of(thing: Any, target: Any = None) -> int:
    """Return a MiniGrid object as a cell number, 0 for None; an object that is `target` gets the bit TARGET."""
    return 0 if thing is None else _cell(thing, target)


def _cell(thing: Any, target: Any) -> int:
    kind, colour, state = map(int, thing.encode())
    content = 0 if thing.contains is None else _cell(thing.contains, target)
    return kind | colour << 4 | state << 7 | (content & LOOKS - 1) << CONTENT_SHIFT | TARGET * (thing is target)


def _tables() -> tuple[Array, Array, Array]:
    looks = np.arange(LOOKS)
    kinds, colours, states = kind_of(looks), colour_of(looks), state_of(looks)
    codes = np.stack((kinds, colours, states), axis=1).astype(np.float32)
    number = np.array([OBJECT_TO_IDX[name] for name in SEEN_KINDS])
    is_coloured = np.isin(kinds, [OBJECT_TO_IDX[name] for name in COLOURED])
    one_hot = [kinds[:, None] == number, is_coloured[:, None] & (colours[:, None] == np.arange(len(COLOURS)))]
    one_hot.append((kinds == DOOR)[:, None] & (states[:, None] == np.arange(len(STATES))))
    transparent = ~((kinds == OBJECT_TO_IDX["wall"]) | (kinds == DOOR) & (states != OPEN))
    return codes, np.concatenate(one_hot, axis=1).astype(np.float32), transparent


CODES, ONE_HOT, TRANSPARENT = _tables()
CHANNELS: dict[Encoding, Array] = {"codes": CODES, "one-hot": ONE_HOT}
"""Encoding -> table (LOOKS, C) float32 with the channels of each look."""
