"""Replay memory of own steps: a ring of rows (robo_rl.replay.rows), in which new steps overwrite the oldest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidEpisode, InvalidSetting
from robo_rl.extras import Extra, RowNumbers, recorded_columns, step_columns
from robo_rl.protocols.components import Stateful
from robo_rl.replay.rows import RowReader, columns_of, history_of, key_of, layout_of, saved_rows, with_views
from robo_rl.replay.storage import GIGABYTE, InMemory, Storage, size_of
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Episode, StateDict, Transition, VectorTransition

IN_MEMORY = InMemory()


class ReplayBuffer(Stateful):
    """Replay memory of the steps of N environments, sampled uniformly over all steps with its own random generator.

    Memory is used only as it is written, up to `bytes_at_capacity`.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        capacity: int,
        seed: int,
        storage: Storage = IN_MEMORY,
        extras: Sequence[Extra] = (),
        environments: int = 1,
    ) -> None:
        """Reserve `capacity` rows; raises InvalidSetting, before anything is reserved, if they do not fit.

        Args:
            spec: Spec of the stored steps.
            capacity: Number of rows; an episode of T steps takes T + 1.
            seed: Seed of the sampling.
            storage: RAM, or mapped files.
            extras: Further columns that the learner reads.
            environments: Number N of environments, which share the rows equally; a remainder is not used.
        """
        if capacity < 2 * environments:
            what = "A replay memory needs two rows for one transition of each environment."
            raise InvalidSetting(what, got=capacity, allowed=f"{2 * environments} or more")
        self._spec, self._environments = spec, environments
        self._capacity = int(capacity) // environments * environments
        self._generator = np.random.default_rng(seed)
        self._columns, self._history = columns_of(spec), history_of(spec)
        self._extras, self._storage = extras, storage
        self._stored = storage.allocate(layout_of(spec, extras), self._capacity)
        self._rows = with_views(spec, self._stored)
        self._reader = RowReader(spec, self._stored, extras, environments)
        self._cursors = np.arange(environments)  # row of the newest observation, or the next free one between two episodes
        self._running = np.zeros(environments, np.bool_)
        self._used = 0
        self._count = 0

    @staticmethod
    def bytes_at_capacity(spec: EnvironmentSpec, capacity: int, extras: Sequence[Extra] = ()) -> int:
        """Return the bytes that `capacity` rows take, without reserving them."""
        return size_of(layout_of(spec, extras), capacity)

    def statement(self, steps: int) -> str:
        """Return a text for the user on the storage [GB] of `steps` steps, and of the full memory (`capacity` rows).

        For a memory in files it has the size of the full memory only, because all rows are reserved at once.
        """
        taken, size, row = (
            self.bytes_at_capacity(self._spec, rows, self._extras) for rows in (min(steps, self._capacity), self._capacity, 1)
        )
        whole = f"{size / GIGABYTE:.2f} GB in {self._storage} ({self._capacity} rows of {row} bytes)"
        if not isinstance(self._storage, InMemory):  # files are reserved as a whole
            return f"replay memory: {whole}"
        return f"replay memory: {taken / GIGABYTE:.2f} GB for {steps} steps, at most {whole}"

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        return self._count

    @property
    def spec(self) -> EnvironmentSpec:
        """Spec of the stored steps."""
        return self._spec

    @property
    def environments(self) -> int:
        """Number of environments whose steps the memory stores."""
        return self._environments

    @property
    def capacity(self) -> int:
        """Largest number of rows; an episode of T steps takes T + 1."""
        return self._capacity

    def is_running(self, place: int = 0) -> bool:
        """Return True while an episode of environment `place` is being stored: from `begin` until its last step or `cut`."""
        return bool(self._running[place])

    def begin(self, observation: Observation, place: int = 0) -> None:
        """Begin an episode of environment `place`; a running episode is first cut at its last stored step."""
        self.cut(place)
        self._write_observation(int(self._cursors[place]), observation, begins=True)
        self._running[place] = True

    def add(self, transition: Transition, place: int = 0) -> None:
        """Store the next step of the running episode of environment `place`; raises InvalidEpisode if none is running."""
        if not self._running[place]:
            raise InvalidEpisode(
                "A step came to the replay memory outside of an episode.",
                got="add without begin",
                allowed="begin(observation), then add for each step until the episode ends",
                fix="call begin with the first observation of each episode",
            )
        row = int(self._cursors[place])
        following = self._next(row)
        self._write_observation(following, transition.next_observation, begins=False)
        self._rows["action"][row] = transition.action
        self._rows["reward"][row] = transition.reward
        self._rows["terminates"][row] = transition.terminated
        self._rows["source"][row] = transition.source
        if self._extras:
            for name, value in step_columns(self._spec, self._extras, transition).items():
                self._rows[name][row] = value
        self._mark(row, True)
        self._cursors[place] = following
        if transition.terminated or transition.truncated:
            self.cut(place)

    def add_all(self, steps: VectorTransition) -> None:
        """Store a step of each environment, and begin the next episode where one ended.

        An episode must be running in every environment. A diverged step is not stored; its episode ends with the step before.
        """
        if self._extras or self._history > 1:
            self._add_one_by_one(steps)
        else:
            self._add_at_once(steps)
        for place in np.flatnonzero(steps.ended).tolist():
            self.begin({name: values[place] for name, values in steps.following.items()}, place)

    def cut(self, place: int = 0) -> None:
        """End the running episode of environment `place` at its last stored step, as a truncation.

        No effect between episodes.
        """
        if self._running[place] and self._rows["starts"][(cursor := int(self._cursors[place])) - self._environments]:
            if self._extras:  # an episode without steps takes no row
                self._reader.complete(self._steps_of_running_episode(cursor))
            self._cursors[place] = self._next(cursor)
        self._running[place] = False

    def add_episode(self, episode: Episode, place: int = 0) -> None:
        """Store a whole recorded episode; its last step counts as truncated unless the episode terminated."""
        columns = recorded_columns(self._spec, self._extras, [len(episode)], [episode])
        for step in range(len(episode)):
            values = {name: values[step] for name, values in columns.items()}
            transition = replace(episode.transition(step), columns=values)
            if step == 0:
                self.begin(transition.observation, place)
            self.add(transition, place)

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99) -> Batch:
        """Return `batch_size` transitions drawn uniformly with replacement; raises InvalidSetting if the memory is empty.

        With n_step > 1 a reward is the discounted sum of up to n rewards; the sum stops at the end of the episode, or at its
        newest step. `Batch.discounts` is discount ** (number of rewards in the sum).
        """
        if not self._count:
            raise InvalidSetting(
                "An empty replay memory cannot be sampled.", got="0 transitions", fix="add steps first: learning_starts >= 1"
            )
        first = self._reader.draw(self._generator, self._used, batch_size)
        return self._reader.batch(first, n_step, discount, self._generator)

    def transitions(self, most: int, random: np.random.Generator) -> Batch:
        """Return all single steps that are stored; of more than `most` a random choice."""
        return self._reader.transitions(self._used, most, random)

    @override
    def state_dict(self) -> StateDict:
        return {
            "rows": {name: _read_only(value[: self._used]) for name, value in self._stored.items()},
            "cursor": self._cursors.copy(),
            "is_running": self._running.copy(),
            "capacity": self._capacity,
            "generator": self._generator.bit_generator.state,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        if state["capacity"] != self._capacity:
            raise InvalidSetting(
                "The saved replay memory has another capacity.",
                got=state["capacity"],
                allowed=self._capacity,
                fix="resume with the settings of the run",
            )
        self._used = len(state["rows"]["starts"])
        for name, rows in saved_rows(layout_of(self._spec, self._extras), state["rows"]).items():
            self._stored[name][: self._used] = rows
        self._rows["starts"][self._used :] = False
        self._count = int(self._rows["starts"].sum())
        self._cursors[:] = state["cursor"]
        self._running[:] = state["is_running"]
        self._generator.bit_generator.state = state["generator"]

    def _add_one_by_one(self, steps: VectorTransition) -> None:
        for place, is_sound in enumerate((~steps.diverged).tolist()):
            if is_sound:
                self.add(steps.transition(place), place)

    def _add_at_once(self, steps: VectorTransition) -> None:
        """Store the rows of all environments, without extras and histories, in a few array operations."""
        kept = np.flatnonzero(~steps.diverged)
        if not len(kept):
            return
        rows = self._cursors[kept]
        following = (rows + self._environments) % self._capacity
        starts, stored = self._rows["starts"], self._rows
        self._count += len(rows) - int(np.count_nonzero(starts[rows])) - int(np.count_nonzero(starts[following]))
        starts[following], starts[rows] = False, True
        self._used = max(self._used, int(following.max()) + 1)
        for name, values in self._spec.observation.newest(steps.next_observations).items():
            if name in self._columns:
                stored["vectors"][following, self._columns[name]] = values[kept].reshape(len(kept), -1)
            elif name in self._spec.observation:
                stored[key_of(name)][following] = values[kept]
        stored["action"][rows], stored["reward"][rows] = steps.actions[kept], steps.rewards[kept]
        stored["terminates"][rows], stored["source"][rows] = steps.terminated[kept], steps.sources[kept]
        self._cursors[kept] = following

    def _next(self, row: int) -> int:
        """Return the row of the next step of the same environment."""
        return (row + self._environments) % self._capacity

    def _write_observation(self, row: int, observation: Observation, *, begins: bool) -> None:
        """Write an observation into a row that starts no transition yet; the old content of the row is overwritten."""
        self._mark(row, False)
        self._used = max(self._used, row + 1)
        if self._history > 1:
            self._rows["begins"][row] = begins
            self._forget_history(row)
        newest = self._spec.observation.newest(observation)
        for name in self._spec.observation:
            if name in self._columns:
                self._rows["vectors"][row, self._columns[name]] = np.ravel(newest[name])
            else:
                self._rows[key_of(name)][row] = newest[name]

    def _forget_history(self, row: int) -> None:
        """Exclude rows whose history reaches into an overwritten row from sampling."""
        for _ in range(1, self._history):
            row = self._next(row)
            if self._rows["begins"][row]:
                return
            self._mark(row, False)

    def _steps_of_running_episode(self, cursor: int) -> RowNumbers:
        """Return the rows (T,) of the running episode, without overwritten ones; the row before its first starts no step."""
        rows, row = [], cursor - self._environments
        while self._rows["starts"][row]:  # ends at the cursor at the latest
            rows.append(row)
            row -= self._environments
        return np.asarray(rows[::-1], np.int64)

    def _mark(self, row: int, starts: bool) -> None:
        self._count += int(starts) - int(self._rows["starts"][row])
        self._rows["starts"][row] = starts


def _read_only(rows: Array) -> Array:
    view = rows.view()
    view.flags.writeable = False
    return view
