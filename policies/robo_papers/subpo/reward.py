"""SubPO: reward for places that an episode visits for the first time.

Prajapat et al. 2023, "Submodular Reinforcement Learning", arXiv:2307.13372. The task is a function F of all that an episode
visited, which gains less the more was visited before, such as the number of cells seen. A step is worth its gain:

    r_t = F(tau_0:t+1) - F(tau_0:t),      so that the rewards of an episode sum to F(tau) - F of its first observation

With a discount of 1 they are then the task itself. The reward depends on the past: a policy that should know it needs a
memory, or the time (the best policy in place and time is a constant factor away if F is not too curved).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores
from robo_rl.types import Array, Labels, StateDict

MOST_CELLS = 4096
"""Largest number of cells that one observation may cover."""


class Seen(Stateful):
    """Memory of the cells that the running episode of each environment has covered."""

    def __init__(self) -> None:
        self.cells: dict[int, set[bytes]] = {}

    @override
    def state_dict(self) -> StateDict:
        size = max((len(cell) // 8 for cells in self.cells.values() for cell in cells), default=1)
        rows = {str(index): np.frombuffer(b"".join(sorted(cells)), np.int64).copy() for index, cells in self.cells.items()}
        return {"size": size, "rows": {index: row.reshape(-1, size) for index, row in rows.items()}}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        rows: dict[str, Array] = dict(state["rows"])
        self.cells = {int(index): {np.asarray(cell).tobytes() for cell in row} for index, row in rows.items()}


@dataclass(frozen=True)
class CoverageReward(StepReward):
    """Reward of SubPO: number of cells of space that an observed place covers for the first time in the episode."""

    name: ClassVar[str] = "coverage"

    entry: str = ""
    """Name of the observation entry with the place, such as end_effector_position; must be set."""
    cell: float = 0.1
    """Width of a cell, in the unit of the entry."""
    radius: float = 0.0
    """Distance from the place up to which cells are covered, too, measured to their centres; in the unit of the entry."""
    weight_each: float = 1.0
    """Reward of each newly covered cell."""

    def __post_init__(self) -> None:
        allowed = {"cell": (0 < self.cell < np.inf, "above 0"), "radius": (0 <= self.radius < np.inf, "0 or more")}
        require_allowed(self, allowed | {"weight_each": (bool(np.isfinite(self.weight_each)), "a finite number")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting or UnknownName if the entry does not exist, or a place covers too many cells."""
        entries = place.spec.observation
        if self.entry not in entries:
            raise UnknownName(f"entry of {place.name}", self.entry or "(none: set entry)", entries)
        size = int(np.prod(entries[self.entry].shape))
        if (2 * int(self.radius / self.cell) + 3) ** size > MOST_CELLS:
            raise InvalidSetting(
                "An observation covers too many cells.",
                got=f"{size} numbers, radius {self.radius}, cells of {self.cell}",
                allowed=f"{MOST_CELLS} at most",
                fix="larger cells, a smaller radius, or an entry of two or three numbers",
            )

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return for each step the reward of the cells that it covers for the first time."""
        self.require(place)
        seen, found = place.memory.part("seen", Seen).cells, np.zeros(len(steps))
        before, after = (
            np.asarray(rows[self.entry], np.float64).reshape(len(steps), -1) for rows in (steps.before, steps.after)
        )
        for step, (index, begins) in enumerate(zip(steps.index.tolist(), steps.begins.tolist(), strict=True)):
            if begins or index not in seen:
                seen[index] = set(self.covered(before[step]))
            new = [cell for cell in self.covered(after[step]) if cell not in seen[index]]
            seen[index].update(new)
            found[step] = self.weight_each * len(new)
        return StepScores(Labels.finite(found, dtype=np.float64), {})

    def covered(self, place: Array) -> list[bytes]:
        """Return keys of the cells that a place (D,) covers."""
        own = np.floor(place / self.cell).astype(np.int64)
        if not self.radius:
            return [own.tobytes()]
        reach = int(self.radius / self.cell) + 1
        around: Any = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * len(place), indexing="ij"), -1)
        cells = own + around.reshape(-1, len(place))
        near = np.linalg.norm((cells + 0.5) * self.cell - place, axis=1) <= self.radius
        near |= (cells == own).all(1)
        return [cell.tobytes() for cell in cells[near]]
