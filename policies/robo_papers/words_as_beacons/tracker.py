"""Subgoal tracking in N environments: the current subgoal of each student, and completions.

A subgoal is complete when the agent stands on its cell, or when its object has changed: a key taken, a door opened, a box
replaced by its content. The current subgoal is the first incomplete one after the last completed one.

Differs from the paper's code: there any change of the cell counts, and students learn to take a box away and put it back, which
earns the bonus of the box and of the key still inside. There a subgoal completed out of order earns nothing, and a wrong one
blocks all later ones; here each earns its bonus once, at any time, and the tracker continues after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from typing_extensions import override

from robo_papers.words_as_beacons.forms import SubgoalForm
from robo_papers.words_as_beacons.level import Level, Subgoal
from robo_papers.words_as_beacons.teachers import Teacher
from robo_rl.protocols.components import Stateful
from robo_rl.types import Metrics, StateDict
from robo_sims.grids.cells import EMPTY, Array, look_of

MOST = 32
"""Largest number of subgoals of a level; further ones are dropped."""
ANYTHING = -1


class SubgoalTracker(Stateful):
    """Tracks which subgoal each of N students has, and rewards its completion. Places are (x, y) [cells]."""

    def __init__(self, form: SubgoalForm, teacher: Teacher, num_envs: int, *, unguided: float, max_steps: int) -> None:
        self._form, self._teacher, self._unguided, self._max_steps = form, teacher, unguided, max_steps
        width = len(form.features(Subgoal((0, 0))))
        self.places = np.full((num_envs, MOST, 2), -1, np.int64)
        self.done = np.ones((num_envs, MOST), np.bool_)
        """(N, MOST) True if complete or absent"""
        self.current = np.zeros(num_envs, np.int64)
        """(N,) index of the current subgoal; none if that is done"""
        self.looks = np.full((num_envs, MOST), ANYTHING, np.int64)
        """(N, MOST) look of the subgoal's object before completion"""
        self.holds = np.zeros((num_envs, MOST), np.bool_)
        """(N, MOST) True if the cell must not be empty afterwards: the content of an opened box"""
        self.features = np.zeros((num_envs, MOST, width), np.float32)
        self.silent = np.zeros(num_envs, np.bool_)
        """(N,) True if the student observes no subgoals in this episode"""
        self.since = np.zeros(num_envs, np.int64)
        """(N,) steps since the last completion or the start"""

    def begin(self, index: int, level: Level) -> None:
        """Begin a level in environment `index` with the teacher's subgoals."""
        subgoals: Sequence[Subgoal] = self._teacher.subgoals(level)[:MOST]
        self.places[index], self.done[index], self.features[index] = -1, True, 0.0
        for number, subgoal in enumerate(subgoals):
            self.places[index, number], self.features[index, number] = subgoal.place, self._form.features(subgoal)
            self.looks[index, number], self.holds[index, number] = _look(subgoal), subgoal.holds
        self.done[index, : len(subgoals)] = False
        self.current[index], self.since[index] = 0, 0
        self.silent[index] = level.number < self._unguided * 2**32

    def step(self, agents: Array, changed: Array, before: Array, after: Array) -> Array:
        """Mark the subgoals completed in this step, and return the bonuses (N,).

        A bonus is 1 - steps since the last completion / max_steps; 0 without completion.

        Args:
            agents: (N, 2) positions of the agents.
            changed: (N, 2) cell that changed, or a place outside the grid.
            before: (N,) look of this cell before the step.
            after: (N,) look of this cell after the step.
        """
        self.since += 1
        was_there = (self.looks == before[:, None]) | (self.looks == ANYTHING)
        was_there &= ~self.holds | (after != EMPTY)[:, None]
        hits = (self.places == agents[:, None]).all(2) | (self.places == changed[:, None]).all(2) & was_there
        hits &= ~self.done
        hits &= np.cumsum(hits, axis=1) == 1  # a step completes at most one, the first of equal ones
        completes = hits.any(1)
        earned = np.where(completes, 1.0 - self.since / self._max_steps, 0.0)
        if completes.any():
            self.done |= hits
            self.since[completes] = 0
            self._move_on(np.flatnonzero(completes), hits)
        return earned.astype(np.float32)

    def _move_on(self, rows: Array, hits: Array) -> None:
        """Advance to the first incomplete subgoal after the completed one, never backwards."""
        for row in rows.tolist():
            first = max(int(hits[row].argmax()), int(self.current[row]))
            while first < MOST - 1 and self.done[row, first]:
                first += 1
            self.current[row] = first

    def observe(self, agents: Array, directions: Array) -> Array:
        """Return the students' observations of their subgoals (N, size), 0 without a subgoal."""
        rows = np.arange(len(agents))
        encoded = self._form.encode(self.features[rows, self.current], self.places[rows, self.current] - agents, directions)
        return encoded * (~(self.silent | self.done[rows, self.current]))[:, None]

    @property
    def metrics(self) -> Metrics:
        """The teacher's numbers of answers, for the log."""
        return self._teacher.metrics

    def close(self) -> None:
        """Close the teacher, which then gives no more subgoals."""
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
    """Return the look of a subgoal's object; ANYTHING for a free cell."""
    if not subgoal.kind:
        return ANYTHING
    state = STATE_TO_IDX[subgoal.state] if subgoal.state else 0
    return int(look_of(OBJECT_TO_IDX[subgoal.kind], COLOR_TO_IDX[subgoal.colour], state))
