"""The dm_control suite: physics of all environments in threads, the task's own Python code for one after the other.

A task draws parts of its model at every reset (targets, terrain), so that each environment has a model of its own. Python code
between two control periods holds the interpreter lock; threads help as far as physics takes the larger part.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from robo_rl.types import StateDict
from robo_sims.batched.environment import BatchedEnvironment, BatchStep
from robo_sims.batched.workers import Call, Workers, choose_threads
from robo_sims.divergence import DivergenceMonitor
from robo_sims.dm_control_tasks import DMControlSimulation

Array = npt.NDArray[Any]


class DMControlBatch:
    """Implements `robo_sims.batched.environment.Batch` for a task of the suite."""

    reset_info: ClassVar[Mapping[str, bool]] = {}
    judges_divergence = False

    def __init__(self, task: str, num_envs: int, threads: int, detail: str) -> None:
        self._members = [_Member(DMControlSimulation(task, detail)) for _ in range(num_envs)]
        self.spec, self.num_envs = self._members[0].simulation.spec, num_envs
        self.datas = [member.simulation.mujoco[1] for member in self._members]
        self._workers = Workers(threads)
        self._vectors = np.zeros((num_envs, sum(array.size for array in self.spec.observation.values())), np.float32)

    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        """Begins episodes in some environments."""
        for index, seed in seeds.items():
            self._vectors[index] = self._members[index].begin(seed)
        return self._vectors[list(seeds)]

    @np.errstate(all="ignore")
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        """Applies control values for one control period."""
        self.begin(seeds)
        stepping = [index for index in range(self.num_envs) if index not in seeds]
        for index in stepping:
            self._members[index].command(control[index])
        self._workers.run([self._members[index].advance for index in stepping])
        return self._judge(stepping)

    def render(self) -> Sequence[Array]:
        """Returns a picture of each environment."""
        return [member.simulation.render() for member in self._members]

    def state_dict(self) -> StateDict:
        """Returns how each running episode began, and its actions so far: an episode is determined by them."""
        return {"members": [member.state_dict() for member in self._members]}

    def load_state_dict(self, state: StateDict) -> None:
        """Simulates the running episodes again, several at a time."""
        pairs = zip(self._members, state["members"], strict=True)
        self._workers.run([functools.partial(member.load_state_dict, saved) for member, saved in pairs])

    def close(self) -> None:
        """Ends the threads and frees the physics."""
        self._workers.close()
        for member in self._members:
            member.simulation.close()

    def _judge(self, stepping: Collection[int]) -> BatchStep:
        rewards, terminated = np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_)
        diverged = np.zeros(self.num_envs, np.bool_)
        for index in stepping:
            outcome = self._members[index].judge()
            if outcome is None:
                diverged[index] = True
            else:
                self._vectors[index], rewards[index], terminated[index] = outcome
        return BatchStep(self._vectors.copy(), rewards, terminated, diverged if diverged.any() else None)


class _Member:
    """One environment: what dm_control.rl.control.Environment.step does, cut into the part for threads and the rest."""

    def __init__(self, simulation: DMControlSimulation) -> None:
        self.simulation = simulation
        source = simulation.source
        self._source, self._physics, self._task = source, source.physics, source.task
        self._monitor = DivergenceMonitor(*simulation.mujoco)
        self._error: Exception | None = None
        self._began: dict[str, Any] = {}
        self._controls: list[Array] = []
        self.advance: Call = functools.partial(self._advance, source._n_sub_steps)

    def begin(self, seed: int | None) -> Array:
        """Begins an episode; returns its first vector."""
        random = self._task.random
        if seed is not None:
            random.seed(seed)
        self._began, self._controls = random.get_state(legacy=False), []
        observation = self.simulation.reset(None)
        self._monitor.reset()
        return _row(observation)

    def command(self, control: Array) -> None:
        """Sets the control values."""
        self._controls.append(control)
        self._task.before_step(control, self._physics)

    def judge(self) -> tuple[Array, float, bool] | None:
        """Returns vector, reward, and whether the task has ended; None where the simulation diverged."""
        error, self._error = self._error, None
        if self._monitor.reason() is not None:
            return None
        if error is not None:
            raise error
        self._task.after_step(self._physics)
        reward = self._task.get_reward(self._physics)
        observation = self._task.get_observation(self._physics)
        at_limit = len(self._controls) >= self._source._step_limit  # the source then does not ask for a terminal state
        discount = None if at_limit else self._task.get_termination(self._physics)
        return _row(self.simulation.flat(observation)), float(reward), discount == 0.0

    def state_dict(self) -> StateDict:
        """Returns the random state in which the episode began, and the controls since."""
        shape = (len(self._controls), self.simulation.spec.action.size)
        return {"began": self._began, "controls": np.array(self._controls, np.float64).reshape(shape)}

    def load_state_dict(self, state: StateDict) -> None:
        """Simulates the episode again."""
        if not state["began"]:
            return
        self._task.random.set_state(state["began"])
        self.begin(None)
        with np.errstate(all="ignore"):
            for control in state["controls"]:
                self.command(control)
                self.advance()
                self.judge()

    def _advance(self, substeps: int) -> None:
        try:
            self._physics.step(substeps)
        except Exception as error:  # dm_control raises at every warning of MuJoCo; `judge` decides what it means
            self._error = error


def _row(observation: Mapping[str, Array]) -> Array:
    return np.concatenate([value.reshape(-1) for value in observation.values()])


def build(
    task: str,
    num_envs: int,
    *,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    detail: str = "plain",
    **pictures: Any,
) -> BatchedEnvironment:
    """Returns `num_envs` environments of a suite task in one; `pictures` are arguments of BatchedEnvironment."""
    batch = DMControlBatch(task, num_envs, choose_threads(threads, num_envs), detail)
    return BatchedEnvironment(batch, autoreset_mode=autoreset_mode, **pictures)
