"""Whole level of a grid world at the start of an episode, for teachers only; never shown to a policy."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from robo_rl.errors import optional

with optional("Subgoals in grid worlds", "minigrid", "minigrid"):
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    from robo_sims.grids import cells as of
    from robo_sims.grids.cells import CONTENT_SHIFT, LOOKS, TARGET, Cells

Place = tuple[int, int]
"""(x, y) of a cell; x counts to the right, y downwards, from 0."""

KINDS = ("door", "key", "ball", "box", "goal", "lava")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOOR_STATES = ("open", "closed", "locked")
DIRECTIONS = ("right", "down", "left", "up")


@dataclass(frozen=True)
class GridObject:
    """Object in a cell of a grid world that is neither wall nor floor."""

    place: Place
    kind: str
    """Kind of the object, one of KINDS."""
    colour: str
    state: str = ""
    """One of DOOR_STATES for a door, else empty."""
    content: GridObject | None = None
    """Object inside a box; None for other objects and empty boxes."""
    is_target: bool = False
    """True if picking it up ends the episode."""

    @property
    def words(self) -> str:
        """The object in words, such as "locked red door"."""
        return " ".join(part for part in (self.state, self.colour, self.kind) if part)


@dataclass(frozen=True)
class Level:
    """Whole level of a grid world at the start of an episode: size, agent, objects, mission."""

    width: int
    height: int
    walls: frozenset[Place]
    things: tuple[GridObject, ...]
    agent: Place
    direction: str
    """Direction of the agent, one of DIRECTIONS."""
    mission: str

    @cached_property
    def by_place(self) -> dict[Place, GridObject]:
        """Place (x, y) -> object in this cell."""
        return {thing.place: thing for thing in self.things}

    @cached_property
    def text(self) -> str:
        """The level in words, as a language model reads it."""
        return "\n".join(self._lines())

    @cached_property
    def number(self) -> int:
        """Checksum of the level, 32 bits, used as a random seed."""
        return zlib.crc32(repr((self.agent, self.direction, self.things)).encode())

    @property
    def goals(self) -> list[GridObject]:
        """Objects that end the episode with success."""
        return [thing for thing in self.things if thing.is_target or thing.kind == "goal"]

    def _lines(self) -> Iterator[str]:
        yield f"mission: {self.mission}"
        size = f"{self.width} columns (x from 0), {self.height} rows (y from 0, downwards)"
        yield f"grid: {size}; # wall, . free, A agent, ? a thing"
        for y in range(self.height):
            yield "".join(self._mark((x, y)) for x in range(self.width))
        yield f"agent: x={self.agent[0]} y={self.agent[1]} looking {self.direction}"
        for thing in self.things:
            content = f", with a {thing.content.words} in it" if thing.content else ""
            yield f"{thing.words}: x={thing.place[0]} y={thing.place[1]}{content}"

    def _mark(self, place: Place) -> str:
        if place == self.agent:
            return "A"
        return "#" if place in self.walls else "?" if place in self.by_place else "."


@dataclass(frozen=True)
class Subgoal:
    """Subgoal: a cell to stand on, or whose object is to change, such as a key taken or a door opened."""

    place: Place
    kind: str = ""
    """Kind of the object there, one of KINDS; empty for a free cell."""
    colour: str = ""
    state: str = ""
    holds: bool = False
    """True for a box with content, which is to be opened rather than carried away."""

    @classmethod
    def of(cls, thing: GridObject) -> Subgoal:
        """Make the subgoal that an object stands for."""
        return cls(thing.place, thing.kind, thing.colour, thing.state, thing.content is not None)

    @property
    def words(self) -> str:
        """The subgoal as an instruction, such as "pick up the red key"."""
        if not self.kind:
            return "go to the free cell"
        carried = {"key": "pick up", "ball": "pick up", "box": "open" if self.holds else "pick up"}
        verb = {"door": "open", **carried}.get(self.kind, "go to")
        return f"{verb} the {' '.join(part for part in (self.state, self.colour, self.kind) if part)}"


_IS_THING = np.isin(np.arange(16), [number for number, name in IDX_TO_OBJECT.items() if name in KINDS])


def level_of(cells: Cells, agent: Place, direction: int, mission: str) -> Level:
    """Read the level from a grid (W, H) of cells.

    Args:
        cells: (W, H) cells of MiniGrid.
        agent: (x, y) of the agent.
        direction: Number of the direction in which it looks.
        mission: Task in words.
    """
    kinds = of.kind_of(cells)
    walls = frozenset((x, y) for x, y in np.argwhere(kinds == of.kind_of(of.WALL)).tolist())
    places = np.argwhere(_IS_THING[kinds]).tolist()
    things = tuple(_thing((x, y), int(cells[x, y])) for x, y in places)
    width, height = cells.shape
    return Level(width, height, walls, things, agent, DIRECTIONS[direction], mission)


def _thing(place: Place, cell: int) -> GridObject:
    content = cell >> CONTENT_SHIFT & LOOKS - 1
    kind = IDX_TO_OBJECT[cell & 15]
    state = DOOR_STATES[cell >> 7 & 3] if kind == "door" else ""
    inside = _thing(place, content) if content else None
    return GridObject(place, kind, IDX_TO_COLOR[cell >> 4 & 7], state, inside, bool(cell & TARGET))
