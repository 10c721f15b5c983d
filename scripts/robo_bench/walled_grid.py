"""A grid of 6 x 6 cells with two walls, which policy gradients do not solve from the outcome alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
SIZE, LONGEST = 6, 30
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
WALLS = {(row, 2) for row in range(5)} | {(row, 4) for row in range(1, 6)}
GOAL = (0, 5)


def distances() -> Floats:
    """Return the least number of steps from each cell to the goal, (SIZE, SIZE); infinite for walls."""
    found = np.full((SIZE, SIZE), np.inf)
    found[GOAL], ring = 0.0, [GOAL]
    while ring:
        row, column = ring.pop(0)
        for down, right in MOVES.tolist():
            cell = (row + down, column + right)
            if 0 <= cell[0] < SIZE and 0 <= cell[1] < SIZE and cell not in WALLS and np.isinf(found[cell]):
                found[cell] = found[row, column] + 1
                ring.append(cell)
    return found


FAR = distances()


def played(policy: Floats, random: np.random.Generator) -> tuple[list[int], list[int], bool]:
    """Return cells (T + 1) and actions (T) of an episode from the upper left corner, and True if it reached the goal."""
    cell, cells, actions = (0, 0), [0], list[int]()
    for _ in range(LONGEST):
        action = int(random.choice(4, p=policy[cells[-1]]))
        row, column = cell[0] + int(MOVES[action, 0]), cell[1] + int(MOVES[action, 1])
        if 0 <= row < SIZE and 0 <= column < SIZE and (row, column) not in WALLS:
            cell = (row, column)
        cells.append(cell[0] * SIZE + cell[1])
        actions.append(action)
        if cell == GOAL:
            return cells, actions, True
    return cells, actions, False
