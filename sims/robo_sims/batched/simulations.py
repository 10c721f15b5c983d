"""MuJoCo simulations that share one compiled model."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_sims.batched.thread_pool import Call, ThreadPool
from robo_sims.simulation import DivergenceMonitor

Array = npt.NDArray[np.float64]
Select = Callable[[mujoco.MjData], npt.NDArray[Any]]
"""Function that returns a view of a part of a simulation's state, such as its joint positions."""

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
"""Full integration state, including the solver's warm start."""
_BAD_STATE = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)


class Gathered:
    """Copies the same part of the state of N simulations, such as joint positions, into one array `values` (N, size)."""

    def __init__(self, datas: Sequence[mujoco.MjData], select: Select) -> None:
        self._views = [select(data).reshape(-1) for data in datas]
        self.values: npt.NDArray[Any] = np.empty((len(datas), self._views[0].size), self._views[0].dtype)
        self._flat = self.values.reshape(-1)

    def read(self) -> None:
        """Copy the current states of all simulations into `values`."""
        np.concatenate(self._views, out=self._flat)


class Simulations:
    """One MjModel, one MjData per environment, and threads that step them."""

    def __init__(
        self,
        model: mujoco.MjModel,
        datas: Sequence[mujoco.MjData],
        threads: ThreadPool,
        advance: Sequence[Call],
        fastest: float = math.inf,
    ) -> None:
        """Combine simulations.

        Args:
            model: Compiled model, shared by all simulations.
            datas: State of each simulation.
            threads: Threads that step the simulations.
            advance: Call that simulates one control period, for each of `datas`.
            fastest: Largest norm of all velocities [m/s, rad/s]; a faster simulation counts as diverged.
        """
        self.model, self.datas = model, datas
        self._monitors = [DivergenceMonitor(model, data, fastest) for data in self.datas]
        self._surely_sound = fastest / math.sqrt(model.nv)  # of each velocity
        self._parts: list[Gathered] = []
        self._warnings = self.gather(lambda data: data.warning.number[_BAD_STATE])
        self.qpos, self.qvel = self.gather(lambda data: data.qpos), self.gather(lambda data: data.qvel)
        self._threads = threads
        self._advance = list(advance)
        self._settle: list[Call] = [functools.partial(mujoco.mj_forward, model, data) for data in self.datas]
        self._control = np.zeros((len(datas), model.nu))
        # Assignment to a memoryview costs a third of that to an array, once per environment and step.
        self._control_rows = [
            (memoryview(data.ctrl).cast("B"), memoryview(row).cast("B"))
            for data, row in zip(self.datas, self._control, strict=True)
        ]

    def gather(self, select: Select) -> Gathered:
        """Return an array of one part of the state of every simulation; it is updated after every step."""
        self._parts.append(Gathered(self.datas, select))
        return self._parts[-1]

    def command(self, control: npt.NDArray[Any], indices: Sequence[int] | None = None) -> None:
        """Set the controls (n, nu) of all simulations, or of those with the given numbers."""
        rows = self._control_rows if indices is None else [self._control_rows[i] for i in indices]
        self._control[slice(None) if indices is None else indices] = control
        for held, row in rows:
            held[:] = row

    def step(self, settling: Collection[int] = ()) -> None:
        """Simulate one control period in all environments, except those that were just reset.

        settling: numbers of the environments that were just reset. For them mj_forward computes the quantities that follow from
        the initial state, such as positions of bodies; no time passes.
        """
        calls = self._advance
        if settling:
            calls = [self._settle[i] if i in settling else call for i, call in enumerate(calls)]
        self._threads.run(calls)
        self.read(settling)

    def advance(self, indices: Collection[int]) -> None:
        """Simulate one control period in the environments with the given numbers; others do not change."""
        self._threads.run([self._advance[i] for i in indices])
        self.read(())

    def settle(self, indices: Collection[int]) -> None:
        """Compute the quantities that follow from the states of some environments, such as positions of bodies (mj_forward)."""
        self._threads.run([self._settle[i] for i in indices])
        self.read(indices)

    def diverged(self) -> npt.NDArray[np.bool_] | None:
        """Return the mask (N,) of diverged simulations, or None if there are none.

        To save time a quick check of the whole batch comes first. It relies on MuJoCo, which checks position, velocity and
        acceleration in every substep and counts a warning if one is huge or not finite.
        """
        is_slow = self._surely_sound == math.inf or np.abs(self.qvel.values).max() <= self._surely_sound
        if is_slow and not np.count_nonzero(self._warnings.values):
            return None
        found = np.array([monitor.reason() is not None for monitor in self._monitors])
        return found if found.any() else None

    def state(self) -> Array:
        """Return the full integration states (N, size) of MuJoCo."""
        states = np.empty((len(self.datas), mujoco.mj_stateSize(self.model, _STATE)))
        for data, state in zip(self.datas, states, strict=True):
            mujoco.mj_getState(self.model, data, state, _STATE)
        return states

    def restore(self, states: Array) -> None:
        """Restore the states (N, size) that `state` returned, and compute the quantities that follow from them (mj_forward)."""
        for data, state in zip(self.datas, states, strict=True):
            mujoco.mj_resetData(self.model, data)
            mujoco.mj_setState(self.model, data, state, _STATE)
            mujoco.mj_forward(self.model, data)
            mujoco.mj_setState(self.model, data, state, _STATE)  # mj_forward overwrites the warm start
        self.read(range(len(self.datas)))

    def read(self, started: Collection[int]) -> None:
        """Update all gathered arrays, and reset the divergence monitors of environments that began an episode."""
        for part in self._parts:
            part.read()
        for index in started:
            self._monitors[index].reset()
