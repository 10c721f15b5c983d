"""The dm_control suite: physics in threads, observations and rewards of all environments at once.

Each environment has its own dm_control simulation, whose code draws initial states and, in some tasks, parts of the model. If
no part of the model is random, all environments are stepped with the model of the first, which stays in the processor's cache.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from dm_control.rl.control import PhysicsError
from typing_extensions import override

from robo_rl.types import StateDict
from robo_sims.batched.environment import BatchStep, SimulationBatch
from robo_sims.batched.simulations import Gathered
from robo_sims.batched.thread_pool import Call, ThreadPool
from robo_sims.dm_control_tasks.evaluators import NOT_VECTORIZABLE, PerEnvironmentEvaluator, TaskEvaluator, VectorizedEvaluator
from robo_sims.dm_control_tasks.simulation import DMControlSimulation
from robo_sims.simulation import DivergenceMonitor

Array = npt.NDArray[Any]
_DRAWS_ON_RESET = frozenset({"quadruped-escape"})
"""Tasks whose reset uses a graphics context, which only one thread at a time may open."""


class DMControlBatch(SimulationBatch):
    """Batch of N environments of one suite task."""

    def __init__(self, task: str, num_envs: int, threads: int, **arguments: Any) -> None:
        """Make the simulations; `arguments` are those of DMControlSimulation."""
        simulations = [DMControlSimulation(task, **arguments) for _ in range(num_envs)]
        self.spec, self.num_envs, self._repeat = simulations[0].spec, num_envs, simulations[0].action_repeat
        self.datas = [simulation.mujoco[1] for simulation in simulations]
        shared = None if _draws_model(simulations[:2]) else simulations[0].mujoco[0]
        self._members = [_Member(simulation, shared or simulation.mujoco[0]) for simulation in simulations]
        self._evaluator: TaskEvaluator = (PerEnvironmentEvaluator if task in NOT_VECTORIZABLE else VectorizedEvaluator)(
            simulations
        )
        self._warnings = Gathered(self.datas, lambda data: data.warning.number)
        self._warned = np.zeros_like(self._warnings.values)  # before the step
        self._threads = ThreadPool(threads)
        self._beginners = ThreadPool(1) if task in _DRAWS_ON_RESET else self._threads

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        self._begin(seeds)
        self._evaluator.read()
        return self._evaluator.observe()[list(seeds)]

    @np.errstate(all="ignore")
    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        if seeds:
            self._begin(seeds)
        stepping = [(member, row) for i, (member, row) in enumerate(zip(self._members, control, strict=True)) if i not in seeds]
        for member, row in stepping:
            member.command(row)
        advances, rewards = [member.advance for member, _ in stepping], np.zeros(self.num_envs)
        for _ in range(self._repeat):
            self._threads.run(advances)
            self._evaluator.read()
            rewards += self._evaluator.reward()
        diverged = self._diverged()
        return BatchStep(self._evaluator.observe(), rewards, np.zeros(self.num_envs, np.bool_), diverged)

    @override
    def render(self) -> Sequence[Array]:
        return [member.simulation.render() for member in self._members]

    @override
    def state_dict(self) -> StateDict:
        """Return for each running episode its initial random state and its actions, which determine the current state."""
        return {"members": [member.state_dict() for member in self._members]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the running episodes by simulating them again.

        All episodes begin before any is simulated, because the beginning of one may change a shared model.
        """
        pairs = list(zip(self._members, state["members"], strict=True))
        self._beginners.run([functools.partial(member.restart, saved) for member, saved in pairs])
        self._threads.run([functools.partial(member.replay, saved) for member, saved in pairs])
        self._warnings.read()
        self._warned[:] = self._warnings.values

    @override
    def close(self) -> None:
        self._threads.close()
        for member in self._members:
            member.simulation.close()

    def _begin(self, seeds: Mapping[int, int | None]) -> None:
        self._beginners.run([functools.partial(self._members[index].begin, seed) for index, seed in seeds.items()])
        for index in seeds:
            self._warned[index] = self.datas[index].warning.number

    def _diverged(self) -> Array | None:
        """Return the mask (N,) of diverged simulations, or None if there are none.

        Raises PhysicsError if MuJoCo warned of something other than a divergence.
        """
        self._warnings.read()
        news = self._warnings.values > self._warned
        if not np.count_nonzero(news):
            return None
        self._warned[:] = self._warnings.values
        diverged = np.array([member.monitor.reason() is not None for member in self._members])
        unexplained = np.flatnonzero(news.any(axis=1) & ~diverged)
        if len(unexplained):
            kinds = [mujoco.mjtWarning(kind).name for kind in np.flatnonzero(news[unexplained].any(axis=0))]
            raise PhysicsError(f"MuJoCo warned of {', '.join(kinds)} in environments {unexplained.tolist()}.")
        return diverged


class _Member:
    """One environment of the batch: begins and simulates its episodes, with its own or a shared model."""

    def __init__(self, simulation: DMControlSimulation, model: mujoco.MjModel) -> None:
        self.simulation = simulation
        self.monitor = DivergenceMonitor(*simulation.mujoco)
        data = simulation.mujoco[1]
        self.advance = _advance(model, data, simulation.source._n_sub_steps)
        self._control = data.ctrl
        self._random = simulation.source.task.random
        self._began: dict[str, Any] = {}
        self._controls: list[Array] = []

    def begin(self, seed: int | None) -> None:
        """Begin an episode; `seed` None continues the random numbers."""
        if seed is not None:
            self._random.seed(seed)
        self._began, self._controls = self._random.get_state(legacy=False), []
        self.simulation.reset(None)
        self.monitor.reset()

    def command(self, control: Array) -> None:
        """Set the controls (nu,) of the next control period, and record them for `state_dict`."""
        self._controls.append(control)
        self._control[:] = control

    def state_dict(self) -> StateDict:
        """Return the initial random state of the running episode, and its controls (T, nu)."""
        shape = (len(self._controls), self.simulation.spec.action.size)
        return {"began": self._began, "controls": np.array(self._controls, np.float64).reshape(shape)}

    def restart(self, state: StateDict) -> None:
        """Begin the saved episode again, with the same random state."""
        if state["began"]:
            self._random.set_state(state["began"])
            self.begin(None)

    def replay(self, state: StateDict) -> None:
        """Simulate the recorded controls of the saved episode."""
        for control in state["controls"]:
            self.command(control)
            for _ in range(self.simulation.action_repeat):
                self.advance()


def _advance(model: mujoco.MjModel, data: mujoco.MjData, substeps: int) -> Call:
    """Return a function that simulates one control step exactly as dm_control's Physics.step does.

    It ends with mj_step1, the first half of the next substep, whose results the observations need.
    """
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:

        def advance() -> None:
            mujoco.mj_step(model, data, substeps)
            mujoco.mj_step1(model, data)

    else:

        def advance() -> None:
            mujoco.mj_step2(model, data)
            if substeps > 1:
                mujoco.mj_step(model, data, substeps - 1)
            mujoco.mj_step1(model, data)

    return advance


def _draws_model(simulations: Sequence[DMControlSimulation]) -> bool:
    """Return True if resets with different seeds change the model."""
    models = []
    for seed, simulation in enumerate(simulations):
        simulation.reset(seed)
        simulation.source.task.random.seed(None)
        model = simulation.mujoco[0]
        models.append(np.empty(mujoco.mj_sizeModel(model), np.uint8))
        mujoco.mj_saveModel(model, None, models[-1])
    return any(model.tobytes() != models[0].tobytes() for model in models)
