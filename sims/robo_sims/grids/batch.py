"""MiniGrid for N environments at once: same results as MiniGrid's `step`, bit for bit, a hundred times as fast.

MiniGrid's own code draws the initial worlds. Of the tasks with additional rules in `step` only those are supported that end
when a certain object is picked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.grid import Grid
from minigrid.envs.blockedunlockpickup import BlockedUnlockPickupEnv
from minigrid.envs.keycorridor import KeyCorridorEnv
from minigrid.envs.obstructedmaze import ObstructedMazeEnv
from minigrid.envs.unlockpickup import UnlockPickupEnv
from minigrid.minigrid_env import MiniGridEnv
from typing_extensions import override

from robo_rl.types import StateDict
from robo_sims.batched.environment import BatchStep, SimulationBatch
from robo_sims.batched.generators import Generators
from robo_sims.grids import cells as of
from robo_sims.grids.cells import CHANNELS, CODES, CONTENT_SHIFT, EMPTY, LOOKS, TARGET, Array, Encoding
from robo_sims.grids.simulation import MiniGridSimulation
from robo_sims.grids.views import LARGEST_VIEW, Views

PICKING_UP_ENDS_IT = (KeyCorridorEnv, ObstructedMazeEnv, UnlockPickupEnv, BlockedUnlockPickupEnv)
TURN_LEFT, TURN_RIGHT, FORWARD, PICK_UP, DROP, TOGGLE = (
    Actions.left, Actions.right, Actions.forward, Actions.pickup, Actions.drop, Actions.toggle,
)  # fmt: skip
PICKED_UP = np.isin(np.arange(16), (of.KEY, of.BALL, of.BOX))
"""Table (kind): True if an agent can carry an object of this kind."""
ENTERED = np.isin(of.kind_of(np.arange(LOOKS)), (EMPTY, of.FLOOR, of.GOAL, of.LAVA)) | (
    of.kind_of(np.arange(LOOKS)) == of.DOOR
) & (of.state_of(np.arange(LOOKS)) == of.OPEN)
"""Table over the codes of cells: True if an agent can step onto such a cell (empty, floor, goal, lava, open door)."""


class MiniGridBatch(SimulationBatch):
    """Batch of N environments of one MiniGrid task."""

    def __init__(self, task: str, num_envs: int, encoding: Encoding) -> None:
        self._single = MiniGridSimulation(task, encoding)
        self.spec, self.num_envs = self._single.spec, num_envs
        self.source: Any = self._single.source
        """MiniGrid's environment, which draws the initial worlds; its observations are not computed."""
        self.source.gen_obs = lambda: {}
        self.instructions: Array = np.full(num_envs, None, object)
        size = self.source.agent_view_size
        self.views = Views(self.source.width, self.source.height, size, sees_through_walls=self.source.see_through_walls)
        self.cells = self.views.framed(np.full((num_envs, self.source.width, self.source.height), EMPTY, np.int32))
        """Grids (N, L), flattened, with a frame of walls."""
        self.places = np.full(num_envs, self.views.index(1, 1), np.int64)
        """Index of the agent's cell in its row of `cells` (N,)."""
        self.directions = np.zeros(num_envs, np.int64)
        self.carried = np.zeros(num_envs, np.int32)
        """Cell number of the carried object (N,), 0 for none."""
        self.taken = np.zeros(num_envs, np.int64)
        """Number of steps of the current episode (N,)."""
        self.changed, self.before, self.after = np.zeros((3, num_envs), np.int64)
        """Index of the cell that the last step changed (N,), 0 for none; look of the faced cell before and after it (N,)."""
        self._ends_with_target = isinstance(self.source, PICKING_UP_ENDS_IT)
        self._channels, self._rows = CHANNELS[encoding], np.arange(num_envs)
        self._generators = Generators(num_envs)

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        for index, seed in seeds.items():
            self._draw(index, seed)
        return self.observe()[list(seeds)]

    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        self.taken += 1
        rewards, terminated = self._act(control.astype(np.int64))
        for index, seed in seeds.items():
            self._draw(index, seed)
        return BatchStep(self.observe(), rewards, terminated, success=terminated & (rewards > 0.0))

    def observe(self) -> Array:
        """Return observations (N, D) float32: the flattened view, then the one-hot direction."""
        looks = self.views.looks(self.cells, self.places, self.directions, self.carried)
        vectors = np.zeros((self.num_envs, looks[0].size * self._channels.shape[1] + 4), np.float32)
        vectors[:, :-4] = self._channels[looks].reshape(self.num_envs, -1)
        vectors[self._rows, self.directions - 4] = 1.0
        return vectors

    @property
    def changed_places(self) -> Array:
        """Coordinates (x, y) of the cell that the last step changed (N, 2); outside the grid if none was changed."""
        return np.stack(self.views.place(self.changed), axis=1)

    def _act(self, actions: Array) -> tuple[Array, Array]:
        """Apply actions (N,); return rewards (N,) and terminations (N,)."""
        front = self.places + self.views.ahead[self.directions]
        ahead = self.cells[self._rows, front]
        self.directions = (self.directions + (actions == TURN_RIGHT) - (actions == TURN_LEFT)) % 4
        goes = (actions == FORWARD) & ENTERED[ahead & LOOKS - 1]
        self.places = np.where(goes, front, self.places)
        kinds = of.kind_of(ahead)
        wins = goes & (kinds == of.GOAL)
        terminated = wins | goes & (kinds == of.LAVA)
        after, takes = ahead, (actions == PICK_UP) & PICKED_UP[kinds] & (self.carried == 0)
        drops = (actions == DROP) & (ahead == EMPTY) & (self.carried != 0)
        after = np.where(takes, EMPTY, np.where(drops, self.carried, self._toggled(ahead, actions == TOGGLE)))
        self.carried = np.where(takes, ahead, np.where(drops, 0, self.carried)).astype(np.int32)
        self.cells[self._rows, front] = after
        self.before, self.after = ahead & LOOKS - 1, after & LOOKS - 1
        self.changed = np.where(after != ahead, front, 0)
        if self._ends_with_target:
            has_it = (actions == PICK_UP) & (self.carried & TARGET != 0)
            wins, terminated = wins | has_it, terminated | has_it
        return np.where(wins, 1 - 0.9 * (self.taken / self.source.max_steps), 0.0), terminated

    def _toggled(self, ahead: Array, toggles: Array) -> Array:
        """Return the faced cells (N,) after the action `toggle` of the environments in the mask `toggles` (N,)."""
        kinds, states = of.kind_of(ahead), of.state_of(ahead)
        is_key = (of.kind_of(self.carried) == of.KEY) & (of.colour_of(self.carried) == of.colour_of(ahead))
        opened = np.where(states == of.OPEN, of.CLOSED, np.where((states == of.CLOSED) | is_key, of.OPEN, of.LOCKED))
        content = ahead >> CONTENT_SHIFT & LOOKS - 1
        unpacked = np.where(content == 0, EMPTY, content)
        door = of.look_of(of.DOOR, of.colour_of(ahead), opened)
        return np.where(toggles & (kinds == of.DOOR), door, np.where(toggles & (kinds == of.BOX), unpacked, ahead))

    def _draw(self, index: int, seed: int | None) -> None:
        """Draw a new world for environment `index` with MiniGrid's code."""
        source = self.source
        source.np_random = self._generators.seeded(index, seed)
        source.reset()
        self.cells[index] = self.views.framed(of.cells_of(source)[None])[0]
        self.places[index] = self.views.index(int(source.agent_pos[0]), int(source.agent_pos[1]))
        self.directions[index], self.taken[index] = source.agent_dir, 0
        self.carried[index] = of.cell_of(source.carrying)
        self.instructions[index] = source.mission

    @override
    def render(self) -> Sequence[Array]:
        return [self._render(index) for index in range(self.num_envs)]

    def _render(self, index: int) -> Array:
        codes = CODES[self.views.inner(self.cells[index][None])[0] & LOOKS - 1].astype(np.uint8)
        self.source.grid, _ = Grid.decode(codes)
        self.source.agent_pos = tuple(int(part) for part in self.views.place(self.places[index]))
        self.source.agent_dir = int(self.directions[index])
        return self._single.render()

    @override
    def state_dict(self) -> StateDict:
        arrays = {name: getattr(self, name).copy() for name in STATE}
        return {**arrays, "generators": self._generators.states(), "instructions": self.instructions.tolist()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name in STATE:
            setattr(self, name, np.array(state[name]))
        self.instructions[:] = state["instructions"]
        self._generators.restore(state["generators"])

    @override
    def close(self) -> None:
        self._single.close()


STATE = ("cells", "places", "directions", "carried", "taken")


def is_batchable(environment: Any) -> bool:
    """Return True if this module can simulate a MiniGrid environment.

    The environment must not change the rules of a step, and its view must not be larger than LARGEST_VIEW cells.
    """
    step = type(environment).step
    known = step is MiniGridEnv.step or any(step is kind.step for kind in PICKING_UP_ENDS_IT)
    return known and environment.agent_view_size <= LARGEST_VIEW
