"""Measures batched simulation beside its peers: `python -m robo_sims.batched.measure [seconds] [repeats]`.

Every contestant steps the same number of environments with random actions, episodes beginning anew as they end. They take turns
within one process, in an order that alternates, and the median of the repeats counts: a busy machine then hits all of them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.vector import SequentialEnvironments
from robo_sims.batched.environment import BatchedEnvironment

Array = npt.NDArray[Any]
TASKS = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
COUNTS = (16, 64)
_SEED = 0


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    unit: str
    ours: float
    """median over the repeats"""
    peers: dict[str, float]
    """name -> median over the repeats"""
    ratios: dict[str, float]
    """name -> median over the repeats of ours by the peer's, each of the same repeat"""


def measure(
    tasks: Sequence[str] = TASKS,
    counts: Sequence[int] = COUNTS,
    *,
    threads: int = 2,
    seconds: float = 0.5,
    repeats: int = 7,
) -> list[Row]:
    """Returns one row for each of Gymnasium's tasks and number of environments.

    seconds: of our own stepping in each repeat; the peers step as often. EnvPool takes part where it is installed.
    """
    return [_row(task, count, threads, seconds, repeats) for task in tasks for count in counts]


def _row(task: str, num_envs: int, threads: int, seconds: float, repeats: int) -> Row:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(contextlib.closing(_ours(task, num_envs, threads)))
        steps = _steps_in(seconds, ours)
        shape = (steps, *ours.action_space.shape)
        actions = np.random.default_rng(_SEED).uniform(-1.0, 1.0, shape).astype(np.float32)
        runs: dict[str, Callable[[], float]] = {"ours": lambda: _time_vector(ours, actions)}
        bare = MjStepAlone(ours, actions, threads)
        runs["mj_step alone"] = bare.time
        singles = stack.enter_context(contextlib.closing(_singles(task, num_envs)))
        runs["SyncVectorEnv"] = lambda: _time_vector(singles, actions[: max(1, steps // 4)]) * 4
        if importlib.util.find_spec("envpool") is not None:
            pool = EnvPool(task, num_envs, threads)
            runs["EnvPool"] = lambda: pool.time(actions)
        return _compare(f"gymnasium/{task} {num_envs} envs {threads} threads", steps * num_envs, runs, repeats)


def _compare(case: str, env_steps: int, runs: dict[str, Callable[[], float]], repeats: int) -> Row:
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats):
        names = list(runs)[:: 1 if repeat % 2 == 0 else -1]
        for name in names:
            rates[name].append(env_steps / runs[name]())
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {
        name: statistics.median(mine / its for mine, its in zip(rates["ours"], values, strict=True))
        for name, values in rates.items()
        if name != "ours"
    }
    return Row(case, "env steps/s", middle.pop("ours"), middle, ratios)


def _ours(task: str, num_envs: int, threads: int) -> BatchedEnvironment:
    made = make_vector_environment(f"gymnasium/{task}", num_envs, threads=threads)
    assert isinstance(made, BatchedEnvironment)
    return made


def _singles(task: str, num_envs: int) -> SequentialEnvironments:
    return SequentialEnvironments(lambda: make_environment(f"gymnasium/{task}"), num_envs)


def _steps_in(seconds: float, environment: BatchedEnvironment) -> int:
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

    def __init__(self, environment: BatchedEnvironment, actions: Array, threads: int) -> None:
        source = environment.batch.source  # type: ignore[attr-defined]
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

    def _record(self, environment: BatchedEnvironment, actions: Array) -> list[list[tuple[Array, Array | None]]]:
        """Returns for each environment and step the control, or the state that an episode begins in."""
        environment.reset(seed=_SEED)
        self._first = [_state(data) for data in environment.datas]
        plan: list[list[tuple[Array, Array | None]]] = [[] for _ in self._datas]
        over = np.zeros(len(plan), np.bool_)
        for action in actions:
            _, _, terminated, truncated, _ = environment.step(action)
            for index, data in enumerate(environment.datas):
                plan[index].append((data.ctrl.copy(), _state(data) if over[index] else None))
            over = terminated | truncated
        return plan

    def _run(self, share: range) -> None:
        model, substeps, step = self._model, self._substeps, mujoco.mj_step
        for index in share:
            _put(model, self._datas[index], self._first[index])
        for turn in range(len(self._plan[0])):
            for index in share:
                data, (control, begins) = self._datas[index], self._plan[index][turn]
                if begins is None:
                    data.ctrl[:] = control
                    step(model, data, substeps)
                else:
                    _put(model, data, begins)


class EnvPool:
    """EnvPool's implementation of a task (https://github.com/sail-sg/envpool), in its synchronous mode."""

    def __init__(self, task: str, num_envs: int, threads: int) -> None:
        import envpool

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


def main(seconds: float, repeats: int) -> None:
    """Prints one line per row as it is measured."""
    for task in TASKS:
        for count in COUNTS:
            (row,) = measure([task], [count], seconds=seconds, repeats=repeats)
            peers = "  ".join(f"{name} {rate:.0f} (x{row.ratios[name]:.2f})" for name, rate in row.peers.items())
            sys.stdout.write(f"{row.case:40} {row.unit}: ours {row.ours:.0f}  {peers}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((float, int), [*sys.argv[1:], "0.5", "7"][:2], strict=True)))
