"""Measures batched simulation beside its peers, for `robo-rl bench env`.

Every contestant steps the same number of environments with random actions, episodes beginning anew as they end.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.benchmark import Cases, Effort, Measurement, Trial, measurement
from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.vector import SequentialEnvironments

Array = npt.NDArray[Any]
NAMES = (
    "gymnasium/HalfCheetah-v5",
    "gymnasium/Ant-v5",
    "gymnasium/Humanoid-v5",
    "robo/ArmPick-v0",
    "dm_control/cheetah-run",
    "dm_control/humanoid-run",
)
COUNTS = (16, 64)
ALONE = "mj_step alone"
_SEED = 0


def cases(effort: Effort) -> Cases:
    """Returns one case for each environment and number of them.

    A trial is as many steps as ours take in `effort.seconds`, a quarter of it for SyncVectorEnv. EnvPool takes part where it is
    installed; mj_step alone, as a limit, where one call of it is all that a control step simulates.
    """
    return {f"{name}, {count} environments": partial(_row, name, count, effort) for name in NAMES for count in COUNTS}


def _row(name: str, num_envs: int, effort: Effort) -> Measurement:
    with contextlib.ExitStack() as stack:
        ours: Any = stack.enter_context(contextlib.closing(make_vector_environment(name, num_envs, threads=effort.threads)))
        steps = _steps_in(effort.seconds, ours)
        shape = (steps, *ours.action_space.shape)
        actions = np.random.default_rng(_SEED).uniform(-1.0, 1.0, shape).astype(np.float32)
        few = actions[: max(1, steps // 4)]
        runs: dict[str, Callable[[], float]] = {"ours": lambda: _time_vector(ours, actions)}
        if name.startswith("gymnasium/"):
            runs[ALONE] = MjStepAlone(ours, actions, effort.threads).time
        singles = stack.enter_context(contextlib.closing(_singles(name, num_envs)))
        runs["SyncVectorEnv"] = lambda: _time_vector(singles, few) * steps / len(few)
        if (pool := _envpool(name, num_envs, effort.threads)) is not None:
            runs["EnvPool"] = lambda: pool.time(actions)
        trials = {contestant: _trial(steps * num_envs, run) for contestant, run in runs.items()}
        case = f"{name}, {num_envs} environments"
        return measurement("env", case, "steps/s", trials, effort, limit=ALONE if ALONE in trials else None)


def _trial(env_steps: int, run: Callable[[], float]) -> Trial:
    return lambda _: env_steps / run()


def _singles(name: str, num_envs: int) -> SequentialEnvironments:
    return SequentialEnvironments(lambda: make_environment(name), num_envs)


def _envpool(name: str, num_envs: int, threads: int) -> EnvPool | None:
    family, _, task = name.partition("/")
    if importlib.util.find_spec("envpool") is None or family not in ("gymnasium", "dm_control"):
        return None
    suite = "".join(word.capitalize() for word in task.replace("_", "-").split("-")) + "-v1"  # such as CheetahRun-v1
    return EnvPool(task if family == "gymnasium" else suite, num_envs, threads)


def _steps_in(seconds: float, environment: Any) -> int:
    actions = np.zeros((20, *(environment.action_space.shape or ())), np.float32)
    return max(5, round(20 * seconds / _time_vector(environment, actions)))


def _time_vector(environment: Any, actions: Array) -> float:
    """Returns [s] of stepping alone."""
    environment.reset(seed=_SEED)
    start = time.perf_counter()
    for action in actions:
        environment.step(action)
    return time.perf_counter() - start


class MjStepAlone:
    """Two threads that do nothing but mj_step, over the trajectories that a batched environment took; they never wait."""

    def __init__(self, environment: Any, actions: Array, threads: int) -> None:
        source = environment.batch.source
        self._model, self._substeps, self._threads = source.model, source.frame_skip, threads
        self._datas = [mujoco.MjData(self._model) for _ in environment.datas]
        self._plan = self._record(environment, actions)

    def time(self) -> float:
        """Returns [s]."""
        shares = [range(first, len(self._datas), self._threads) for first in range(self._threads)]
        threads = [threading.Thread(target=self._run, args=(share,)) for share in shares]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    def _record(self, environment: Any, actions: Array) -> list[list[tuple[memoryview, Array | None]]]:
        """Returns for each environment and step the control, or the state that an episode begins in."""
        environment.reset(seed=_SEED)
        self._first = [_state(data) for data in environment.datas]
        plan: list[list[tuple[memoryview, Array | None]]] = [[] for _ in self._datas]
        over = np.zeros(len(plan), np.bool_)
        for action in actions:
            _, _, terminated, truncated, _ = environment.step(action)
            for index, data in enumerate(environment.datas):
                plan[index].append((memoryview(data.ctrl.copy()), _state(data) if over[index] else None))
            over = terminated | truncated
        return plan

    def _run(self, share: range) -> None:
        model, substeps, step = self._model, self._substeps, mujoco.mj_step
        controls = [memoryview(data.ctrl) for data in self._datas]
        for index in share:
            _put(model, self._datas[index], self._first[index])
        for turn in range(len(self._plan[0])):
            for index in share:
                data, (control, begins) = self._datas[index], self._plan[index][turn]
                if begins is None:
                    controls[index][:] = control
                    step(model, data, substeps)
                else:
                    _put(model, data, begins)


class EnvPool:
    """EnvPool's implementation of a task (https://github.com/sail-sg/envpool), in its synchronous mode."""

    def __init__(self, task: str, num_envs: int, threads: int) -> None:
        envpool: Any = importlib.import_module("envpool")  # in the environment of the benchmarks, never among our needs
        self._pool = envpool.make(task, env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=_SEED)
        space = self._pool.action_space
        self._low, self._high = space.low, space.high

    def time(self, actions: Array) -> float:
        """Returns [s] of stepping alone, with actions in [-1, 1] brought to its own limits beforehand."""
        physical = self._low + (actions.astype(np.float64) + 1) * 0.5 * (self._high - self._low)
        self._pool.reset()
        start = time.perf_counter()
        for action in physical:
            self._pool.step(action)
        return time.perf_counter() - start


def _state(data: mujoco.MjData) -> Array:
    return np.concatenate([data.qpos, data.qvel])


def _put(model: mujoco.MjModel, data: mujoco.MjData, state: Array) -> None:
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = state[: model.nq], state[model.nq :]
