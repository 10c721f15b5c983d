"""Batches of Gymnasium's MuJoCo tasks, version 5.

Weights and limits are read from Gymnasium's environment, whose own code draws the initial states.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.types import StateDict
from robo_sims.batched.environment import BatchStep, SimulationBatch
from robo_sims.batched.generators import Generators
from robo_sims.batched.simulations import Simulations
from robo_sims.batched.thread_pool import Call, ThreadPool
from robo_sims.gymnasium_mujoco.simulation import GymnasiumSimulation
from robo_sims.gymnasium_mujoco.tasks import TASKS

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class GymnasiumBatch(SimulationBatch):
    """Batch of N environments of one Gymnasium task."""

    def __init__(self, task: str, num_envs: int, threads: int, detail: str = "plain") -> None:
        self._single = GymnasiumSimulation(task, detail)
        self.spec, self.num_envs = self._single.spec, num_envs
        self.source = self._single.source
        _without_settling(self.source)
        self._threads = ThreadPool(threads)
        kind, model, skip = TASKS[task], self.source.model, self.source.frame_skip
        self.datas = [mujoco.MjData(model) for _ in range(num_envs)]
        advance = _advance_with_forces if kind.observes_forces else _advance
        calls = [advance(skip, model, data) for data in self.datas]
        self._simulations = Simulations(model, self.datas, self._threads, calls)
        self._task = kind(self.source, self._simulations)
        self._generators = Generators(num_envs)
        self._before = self._task.place()

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        self._draw(seeds)
        self._simulations.settle(seeds)
        indices = list(seeds)
        self._before[indices] = self._task.place()[indices]
        return self._task.observe()[indices]

    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        """Apply control values (N, A), in float32 like Gymnasium, so that rewards are identical."""
        action = control.astype(np.float32)
        self._simulations.command(action)
        if seeds:
            self._draw(seeds)
        self._simulations.step(seeds)
        diverged = self._simulations.diverged()
        if diverged is None:
            return self._evaluate(action, None)
        with np.errstate(all="ignore"):
            return self._evaluate(action, diverged)

    @override
    def render(self) -> Sequence[Array]:
        return [self._render(data) for data in self.datas]

    @override
    def state_dict(self) -> StateDict:
        simulations, generators = self._simulations.state(), self._generators.states()
        return {"simulations": simulations, "generators": generators, "before": self._before.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._simulations.restore(state["simulations"])
        self._before = np.array(state["before"])
        self._generators.restore(state["generators"])

    @override
    def close(self) -> None:
        self._threads.close()
        self._single.close()

    def _evaluate(self, action: Array, diverged: Mask | None) -> BatchStep:
        after = self._task.place()
        rewards, terminated, terms = self._task.evaluate(self._before, after, action)
        self._before = after
        return BatchStep(self._task.observe(), rewards, terminated, diverged, reward_terms=terms)

    def _render(self, data: mujoco.MjData) -> Array:
        self.source.data = data
        return self._single.render()

    def _draw(self, seeds: Mapping[int, int | None]) -> None:
        """Draw the initial states of some environments with Gymnasium's code."""
        source, model = self.source, self._simulations.model
        for index, seed in seeds.items():
            source.data, source.np_random = self.datas[index], self._generators.seeded(index, seed)
            mujoco.mj_resetData(model, source.data)
            source.reset_model()


def _advance(frame_skip: int, model: mujoco.MjModel, data: mujoco.MjData) -> Call:
    return functools.partial(mujoco.mj_step, model, data, frame_skip)


def _advance_with_forces(frame_skip: int, model: mujoco.MjModel, data: mujoco.MjData) -> Call:
    def advance() -> None:
        mujoco.mj_step(model, data, frame_skip)
        mujoco.mj_rnePostConstraint(model, data)

    return advance


def _without_settling(source: Any) -> None:
    """Patch Gymnasium's environment so that a reset only writes the state; threads compute derived quantities in parallel."""

    def set_state(qpos: Array, qvel: Array) -> None:
        source.data.qpos[:], source.data.qvel[:] = qpos, qvel

    source.set_state = set_state
