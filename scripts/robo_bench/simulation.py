"""Measure batched simulation against its peers, for `robo-rl bench env`.

Every contestant steps the same number of environments with random actions, episodes following each other.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import mujoco
import mujoco.rollout
import numpy as np
import numpy.typing as npt

from robo_bench.contestant import contestant
from robo_bench.measurement import Before, Bound, Case, Contestants, Effort, Trial, Work, timed
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments

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
_SEED = 0


def cases(effort: Effort) -> list[Case]:
    """Return one case for each environment and number of them.

    A trial is as many steps as ours take in `effort.seconds`, a quarter of it for SyncVectorEnv. EnvPool takes part if it is
    installed; physics alone, by mj_step as a limit and by mujoco.rollout, if one call is all that a control step simulates.
    """
    sizes = [(name, count) for name in NAMES for count in COUNTS]
    return [Case(f"{name}, {count} environments", "steps/s", partial(_contestants, name, count)) for name, count in sizes]


def _contestants(name: str, num_envs: int, effort: Effort, stack: ExitStack) -> Contestants:
    ours: Any = stack.enter_context(closing(make_vector_environment(name, num_envs, threads=effort.cores)))
    few = timed(_stepping(ours, np.zeros((20, *ours.action_space.shape), np.float32)), 0.0, partial(ours.reset, seed=_SEED))
    steps = max(5, round(20 * effort.seconds / few.wall))
    actions = _actions(steps, ours)
    trials: dict[str, Any] = {"ours": _once(_stepping(ours, actions), partial(ours.reset, seed=_SEED))}
    if name.startswith("gymnasium/"):
        recording = record(ours, actions)
        alone = MjStepAlone(recording, effort.cores)
        rollout = stack.enter_context(closing(MujocoRollout(recording, effort.cores)))
        trials["mj_step alone"] = Bound(_once(alone.run))
        trials["mujoco.rollout, physics alone"] = Bound(_once(rollout.run, rollout.begin))  # neither observes nor rewards
    size = {"name": name, "num_envs": num_envs, "steps": steps}
    trials["SyncVectorEnv"] = contestant(f"{__name__}:single_environments", size)
    if (task := _envpool_task(name)) is not None:
        trials["EnvPool"] = contestant(f"{__name__}:envpool", size | {"task": task, "threads": effort.cores})
    return trials


def _actions(steps: int, environment: Any) -> Array:
    """Return random actions (T, N, A) in [-1, 1], the same in every process."""
    shape = (steps, *environment.action_space.shape)
    return np.random.default_rng(_SEED).uniform(-1.0, 1.0, shape).astype(np.float32)


def _stepping(environment: Any, actions: Array) -> Work:
    """Return work that takes all steps and returns those of all environments."""

    def steps() -> int:
        for action in actions:
            environment.step(action)
        return len(actions) * int(actions.shape[1])

    return steps


def _once(work: Work, before: Before = lambda: None) -> Trial:
    """Return a trial of work that is done once, whatever time it is given."""
    return lambda _: timed(work, 0.0, before).rate


def single_environments(name: str, num_envs: int, steps: int) -> Trial:
    """Return a trial of as many single environments one after the other, a quarter of the steps."""
    singles = SequentialEnvironments(lambda: make_environment(name), num_envs)
    few = _actions(steps, singles)[: max(1, steps // 4)]
    return _once(_stepping(singles, few), partial(singles.reset, seed=_SEED))


def envpool(name: str, num_envs: int, steps: int, task: str, threads: int) -> Trial:
    """Return a trial of EnvPool's implementation of a task (https://github.com/sail-sg/envpool) in its synchronous mode.

    Args:
        name: Name of our environment, which has the same actions.
        num_envs: Number of environments.
        steps: Steps of the recorded random actions.
        task: EnvPool's name of the task.
        threads: Number of EnvPool's threads.
    """
    make: Any = importlib.import_module("envpool").make  # in the environment of the benchmarks, never among our needs
    pool = make(task, env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=_SEED)
    low, high = pool.action_space.low, pool.action_space.high
    with closing(make_environment(name)) as single:
        shape = (steps, num_envs, *(single.action_space.shape or ()))
    actions = np.random.default_rng(_SEED).uniform(-1.0, 1.0, shape).astype(np.float32)
    physical = low + (actions.astype(np.float64) + 1) * 0.5 * (high - low)  # its own limits
    return _once(_stepping(pool, physical), pool.reset)


def _envpool_task(name: str) -> str | None:
    """Return EnvPool's name of a task, or None if EnvPool is not installed or has no such family."""
    family, _, task = name.partition("/")
    if importlib.util.find_spec("envpool") is None or family not in ("gymnasium", "dm_control"):
        return None
    suite = "".join(word.capitalize() for word in task.replace("_", "-").split("-")) + "-v1"  # such as CheetahRun-v1
    return task if family == "gymnasium" else suite


@dataclass(frozen=True)
class Recording:
    """The trajectories that a batched environment took."""

    model: mujoco.MjModel
    substeps: int
    first: list[Array]
    """Simulation state of each environment after the reset, (nq + nv,): positions, then velocities."""
    controls: Array
    """Controls that were applied, (T, N, nu): T steps, N environments."""
    begins: list[dict[int, Array]]
    """At each step the states of those environments that begin an episode instead of being simulated."""


def record(environment: Any, actions: Array) -> Recording:
    """Step a batched environment, in the mode NEXT_STEP, with actions (T, N, A)."""
    environment.reset(seed=_SEED)
    datas, source = environment.datas, environment.batch.source
    first, controls, begins = [_state(data) for data in datas], [], []
    over = np.zeros(len(datas), np.bool_)
    for action in actions:
        _, _, terminated, truncated, _ = environment.step(action)
        controls.append([data.ctrl.copy() for data in datas])
        begins.append({index: _state(datas[index]) for index in np.flatnonzero(over).tolist()})
        over = terminated | truncated
    return Recording(source.model, source.frame_skip, first, np.array(controls), begins)


class MjStepAlone:
    """Threads that do nothing but mj_step, over recorded trajectories; they never wait for each other."""

    def __init__(self, recording: Recording, threads: int) -> None:
        self._recording, self._threads = recording, threads
        self._datas = [mujoco.MjData(recording.model) for _ in recording.first]
        self._controls = [[memoryview(row) for row in rows] for rows in recording.controls]

    def run(self) -> int:
        """Simulate all recorded trajectories with mj_step and return the number of steps of all environments."""
        shares = [range(first, len(self._datas), self._threads) for first in range(self._threads)]
        threads = [threading.Thread(target=self._run, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(self._controls) * len(self._datas)

    def _run(self, share: range) -> None:
        model, substeps, step = self._recording.model, self._recording.substeps, mujoco.mj_step
        held = [memoryview(data.ctrl) for data in self._datas]
        for index in share:
            _put(model, self._datas[index], self._recording.first[index])
        for controls, begins in zip(self._controls, self._recording.begins, strict=True):
            for index in share:
                if index in begins:
                    _put(model, self._datas[index], begins[index])
                else:
                    held[index][:] = controls[index]
                    step(model, self._datas[index], substeps)


class MujocoRollout:
    """mujoco.rollout over recorded trajectories, one control period a call, as a loop that chooses actions needs.

    It hands states back, but not the solver's warm start: each call begins without one.
    """

    def __init__(self, recording: Recording, threads: int) -> None:
        self._recording, count = recording, len(recording.first)
        self._models, self._datas = [recording.model] * count, [mujoco.MjData(recording.model) for _ in range(threads)]
        self._pool = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._first = np.stack([self._full(state) for state in recording.first])
        self._begins = [{index: self._full(state) for index, state in begins.items()} for begins in recording.begins]
        self._trail = np.zeros((count, recording.substeps, self._first.shape[1]))
        self._sensors = np.zeros((count, recording.substeps, recording.model.nsensordata))
        self.states = self._first

    def begin(self) -> None:
        """Go back to the first states."""
        self.states = self._first.copy()

    def run(self) -> int:
        """Simulate all trajectories from the states and return their steps."""
        for controls, begins in zip(self._recording.controls, self._begins, strict=True):
            self._step(controls, begins)
        return len(self._begins) * len(self.states)

    def close(self) -> None:
        """Stop the threads that simulate."""
        self._pool.close()

    def _step(self, controls: Array, begins: dict[int, Array]) -> None:
        if len(begins) < len(controls):  # unchecked, an empty batch crashes the process
            self._simulate(
                controls, [index for index in range(len(controls)) if index not in begins] if begins else slice(None)
            )
        for index, state in begins.items():
            self.states[index] = state

    def _simulate(self, controls: Array, going: list[int] | slice) -> None:
        states, substeps = self.states[going], self._recording.substeps
        count, held = len(states), np.repeat(controls[going][:, None], substeps, axis=1)
        trail, sensors = self._trail[:count], self._sensors[:count]
        self._pool.rollout(
            self._models[:count], self._datas, states, held, nstep=substeps, state=trail, sensordata=sensors, skip_checks=True
        )
        self.states[going] = trail[:, -1]

    def _full(self, state: Array) -> Array:
        """Return a state as mujoco.rollout takes it."""
        model, data, kind = self._recording.model, self._datas[0], mujoco.mjtState.mjSTATE_FULLPHYSICS
        _put(model, data, state)
        full = np.empty(mujoco.mj_stateSize(model, kind))
        mujoco.mj_getState(model, data, full, kind)
        return full


def _state(data: mujoco.MjData) -> Array:
    return np.concatenate([data.qpos, data.qvel])


def _put(model: mujoco.MjModel, data: mujoco.MjData, state: Array) -> None:
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = state[: model.nq], state[model.nq :]
