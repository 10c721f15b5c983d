"""The level of a grid world as its teacher knows it."""

from __future__ import annotations

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

from robo_rl.rewards.subgoals.level import DIRECTIONS, DOOR_STATES, KINDS, Level, Place, Thing
from robo_sims.grids import cells as of
from robo_sims.grids.cells import CONTENT_SHIFT, LOOKS, TARGET, Cells

_IS_THING = np.isin(np.arange(16), [number for number, name in IDX_TO_OBJECT.items() if name in KINDS])


def level_of(cells: Cells, agent: Place, direction: int, mission: str) -> Level:
    """Returns the level that a grid (W, H) of cells shows."""
    kinds = of.kind_of(cells)
    walls = frozenset((x, y) for x, y in np.argwhere(kinds == of.kind_of(of.WALL)).tolist())
    places = np.argwhere(_IS_THING[kinds]).tolist()
    things = tuple(_thing((x, y), int(cells[x, y])) for x, y in places)
    width, height = cells.shape
    return Level(width, height, walls, things, agent, DIRECTIONS[direction], mission)


def _thing(place: Place, cell: int) -> Thing:
    content = cell >> CONTENT_SHIFT & LOOKS - 1
    kind = IDX_TO_OBJECT[cell & 15]
    state = DOOR_STATES[cell >> 7 & 3] if kind == "door" else ""
    inside = _thing(place, content) if content else None
    return Thing(place, kind, IDX_TO_COLOR[cell >> 4 & 7], state, inside, bool(cell & TARGET))
