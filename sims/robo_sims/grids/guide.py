"""Subgoals under way: what the students of N environments are told now, and which they complete.

A subgoal is complete when the agent stands on its cell, or when its thing is there no longer as it was: a key taken, a door
opened, a box replaced by what was in it. The one that is told is the first that is not complete after the last complete one.

Differs from the paper's code, in which any change of the cell counts: students learn to take a box away and put it back, which
earns the bonus of the box and of the key that is still in it.

Differs, too, where one that is completed before its turn earns nothing, and a wrong one hides all later
ones there: here each earns its bonus whenever it is completed, once, and those after it are told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from typing_extensions import override

from robo_rl.protocols.components import Stateful
from robo_rl.types import StateDict
from robo_sims.grids.cells import EMPTY, Array, look_of
from robo_sims.grids.subgoals.forms import SubgoalForm
from robo_sims.grids.subgoals.level import Level, Subgoal
from robo_sims.grids.subgoals.teachers import Teacher

MOST = 32
"""Subgoals of a level; those beyond are left out."""
ANYTHING = -1


class Guide(Stateful):
    """Tells and credits subgoals. Places are (x, y) [cells]."""

    def __init__(self, form: SubgoalForm, teacher: Teacher, num_envs: int, *, unguided: float, max_steps: int) -> None:
        self._form, self._teacher, self._unguided, self._max_steps = form, teacher, unguided, max_steps
        width = len(form.features(Subgoal((0, 0))))
        self.places = np.full((num_envs, MOST, 2), -1, np.int64)
        self.done = np.ones((num_envs, MOST), np.bool_)
        """(N, MOST) complete, or none"""
        self.current = np.zeros(num_envs, np.int64)
        """(N,) which is told; where it is done, none is"""
        self.looks = np.full((num_envs, MOST), ANYTHING, np.int64)
        """(N, MOST) how the thing of a subgoal looks before it is complete"""
        self.holds = np.zeros((num_envs, MOST), np.bool_)
        """(N, MOST) whether something has to be left in the cell, that of an opened box"""
        self.features = np.zeros((num_envs, MOST, width), np.float32)
        self.silent = np.zeros(num_envs, np.bool_)
        """(N,) whether the student is told nothing in this episode"""
        self.since = np.zeros(num_envs, np.int64)
        """(N,) steps since the last completion, or the beginning"""

    def begin(self, index: int, level: Level) -> None:
        """Environment `index` begins a level; its teacher is asked."""
        subgoals: Sequence[Subgoal] = self._teacher.subgoals(level)[:MOST]
        self.places[index], self.done[index], self.features[index] = -1, True, 0.0
        for number, subgoal in enumerate(subgoals):
            self.places[index, number], self.features[index, number] = subgoal.place, self._form.features(subgoal)
            self.looks[index, number], self.holds[index, number] = _look(subgoal), subgoal.holds
        self.done[index, : len(subgoals)] = False
        self.current[index], self.since[index] = 0, 0
        self.silent[index] = level.number < self._unguided * 2**32

    def step(self, agents: Array, changed: Array, before: Array, after: Array) -> Array:
        """Credits what the step completed; returns (N,) 1 - steps since the one before / max_steps, 0 if it completed none.

        agents: (N, 2) where they stand. changed: (N, 2) the cell that looks otherwise now, or a place outside the grid; before,
        after: (N,) how it looked and looks.
        """
        self.since += 1
        was_there = (self.looks == before[:, None]) | (self.looks == ANYTHING)
        was_there &= ~self.holds | (after != EMPTY)[:, None]
        hits = (self.places == agents[:, None]).all(2) | (self.places == changed[:, None]).all(2) & was_there
        hits &= ~self.done
        hits &= np.cumsum(hits, axis=1) == 1  # a step completes one at most, of two alike the first
        completes = hits.any(1)
        earned = np.where(completes, 1.0 - self.since / self._max_steps, 0.0)
        if completes.any():
            self.done |= hits
            self.since[completes] = 0
            self._move_on(np.flatnonzero(completes), hits)
        return earned.astype(np.float32)

    def _move_on(self, rows: Array, hits: Array) -> None:
        """Tells the first that is not done after the one that is completed, where that does not lie before the present one."""
        for row in rows.tolist():
            first = max(int(hits[row].argmax()), int(self.current[row]))
            while first < MOST - 1 and self.done[row, first]:
                first += 1
            self.current[row] = first

    def tell(self, agents: Array, directions: Array) -> Array:
        """Returns (N, size) what the students are told, 0 if that is nothing."""
        rows = np.arange(len(agents))
        told = self._form.tell(self.features[rows, self.current], self.places[rows, self.current] - agents, directions)
        return told * (~(self.silent | self.done[rows, self.current]))[:, None]

    def close(self) -> None:
        """Lets the teacher go."""
        self._teacher.close()

    @override
    def state_dict(self) -> StateDict:
        return {name: getattr(self, name).copy() for name in STATE}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name in STATE:
            setattr(self, name, np.array(state[name]))


STATE = ("places", "done", "current", "looks", "holds", "features", "silent", "since")


def _look(subgoal: Subgoal) -> int:
    """Returns how the thing of a subgoal looks; a free cell may hold anything."""
    if not subgoal.kind:
        return ANYTHING
    state = STATE_TO_IDX[subgoal.state] if subgoal.state else 0
    return int(look_of(OBJECT_TO_IDX[subgoal.kind], COLOR_TO_IDX[subgoal.colour], state))
