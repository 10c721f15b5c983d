"""Views of agents in grid worlds: a square in front of the agent, in which walls and closed doors hide cells.

Same results as MiniGrid's `gen_obs`, for N environments at once; S is the size of the view, directions are 0 right (+x), 1 down
(+y), 2 left, 3 up.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from minigrid.core.constants import DIR_TO_VEC

from robo_sims.grids.cells import EMPTY, LOOKS, TRANSPARENT, WALL, Array, Cell, Cells

Bits = npt.NDArray[np.uint8]
LARGEST_VIEW = 8
"""Largest size of a view [cells], because a row of a view is stored in one byte."""


class Views:
    """Computes square views of size S in grids (W, H), which are stored as flat rows (L,) with a frame of walls."""

    def __init__(self, width: int, height: int, size: int, *, sees_through_walls: bool) -> None:
        self._size, self._frame, self._sees_through_walls = size, size - 1, sees_through_walls
        self._shape = (width + 2 * self._frame, height + 2 * self._frame)
        self._offsets = np.stack([self._offsets_towards(number) for number in range(4)])
        self.ahead = np.array([self._offset(*vector) for vector in DIR_TO_VEC])
        """Difference of the index of the cell ahead, for each direction (4,)."""

    def framed(self, cells: Cells) -> Cells:
        """Return cells (N, W, H) as new flat rows (N, L), with a frame of walls."""
        whole = np.full((len(cells), *self._shape), WALL, np.int32)
        whole[:, self._frame : -self._frame, self._frame : -self._frame] = cells
        return whole.reshape(len(cells), -1)

    def inner(self, flat: Cells) -> Cells:
        """Return the cells (N, W, H) of flat rows (N, L), as a view without the frame."""
        return flat.reshape(-1, *self._shape)[:, self._frame : -self._frame, self._frame : -self._frame]

    def index(self, x: Cell, y: Cell) -> Cell:
        """Return the index of the cell (x, y), or of many cells, in a flat row."""
        return self._offset(x + self._frame, y + self._frame)

    def place(self, index: Array) -> tuple[Array, Array]:
        """Return x and y of the cells with given indices; the inverse of `index`."""
        return index // self._shape[1] - self._frame, index % self._shape[1] - self._frame

    def looks(self, flat: Cells, index: Array, directions: Array, carried: Array) -> Array:
        """Return the looks (N, S, S) of the cells in view, indexed by x, then y; hidden cells are 0.

        The agent's own cell, in the middle of the last row, has the look of the carried object.

        Args:
            flat: Flat rows (N, L).
            index: Index of each agent's cell (N,).
            directions: 0 to 3 (N,).
            carried: Cell number of the carried object (N,), 0 for none.
        """
        size = self._size
        places = index[:, None] + self._offsets[directions]
        seen = np.take_along_axis(flat, places, axis=1).reshape(-1, size, size) & LOOKS - 1  # (N, y, x)
        if not self._sees_through_walls:
            seen *= self._visible(TRANSPARENT[seen])
        seen[:, -1, size // 2] = np.where(carried == 0, EMPTY, carried & LOOKS - 1)
        return seen.transpose(0, 2, 1)

    def _visible(self, transparent: npt.NDArray[np.bool_]) -> Bits:
        """Return 1 for visible and 0 for hidden cells (N, S, S), computed row by row, beginning at the agent.

        transparent: True for cells through which the agent sees (N, S, S).
        """
        size, spread = self._size, _spread(self._size)
        lets_through = np.packbits(transparent, axis=2)[..., 0]  # (N, S)
        rows = np.empty_like(lets_through)
        row = np.full(len(rows), 128 >> size // 2, np.uint8)
        for y in reversed(range(size)):
            rows[:, y], row = spread[:, row, lets_through[:, y]]
        return np.unpackbits(rows[..., None], axis=2, count=size)

    def _offset(self, x: Cell, y: Cell) -> Cell:
        return x * self._shape[1] + y

    def _offsets_towards(self, direction: int) -> Array:
        ahead = np.array(DIR_TO_VEC[direction])
        right = np.array((-ahead[1], ahead[0]))
        y, x = np.divmod(np.arange(self._size**2), self._size)
        places = np.outer(self._size - 1 - y, ahead) + np.outer(x - self._size // 2, right)
        return np.asarray(self._offset(places[:, 0], places[:, 1]))


@cache
def _spread(size: int) -> Bits:
    """Return a table (2, 256, 256) of the visible cells of a row, and of those of the next row, as bits.

    It is indexed by the cells that are visible from the previous row, and by the transparent cells, both as bits; the first
    cell is the highest bit.
    """
    seen, through = (part.astype(np.uint8) for part in np.meshgrid(np.arange(256), np.arange(256), indexing="ij"))
    behind = np.zeros_like(seen)
    cells = [np.uint8(128 >> x) for x in range(size)]
    for here, there in [*pairwise(cells), *pairwise(cells[::-1])]:
        passes = (seen & through & here) != 0  # to the right, then to the left
        seen |= passes * there
        behind |= passes * (here | there)
    return np.stack((seen, behind))
