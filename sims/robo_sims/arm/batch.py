"""Batched arm tasks: N environments controlled and evaluated together, bit-identical to single ones.

Stacked matrix products and solutions use the same BLAS and LAPACK calls as single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from typing_extensions import override

from robo_rl.types import StateDict
from robo_sims.arm import environment
from robo_sims.arm.control import CONTROLS
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.physics import EVERYWHERE, FASTEST, JOINTS, Arm, ArmPhysics, Array, Mask, Rows
from robo_sims.arm.rewards import REWARDS
from robo_sims.arm.tasks import TASKS
from robo_sims.batched.environment import BatchedEnvironment, BatchStep, SimulationBatch
from robo_sims.batched.generators import Generators
from robo_sims.batched.simulations import Simulations
from robo_sims.batched.thread_pool import ThreadPool, choose_threads


class Arms(Arm):
    """The arms of N simulations."""

    def __init__(self, simulations: Simulations, physics: Sequence[ArmPhysics]) -> None:
        self._simulations, self._physics = simulations, physics
        super().__init__(simulations.model, simulations.qpos.values, simulations.qvel.values)
        self._orientation = np.zeros((len(physics), 4))
        self._jacobians = np.zeros((len(physics), 6, JOINTS))

    @override
    def view(self, select: Callable[[mujoco.MjData], npt.NDArray[Any]]) -> Array:
        return self._simulations.gather(select).values

    @override
    def jacobian(self, rows: Rows = ...) -> Array:
        for index in np.arange(len(self._physics))[rows].tolist():
            self._jacobians[index] = self._physics[index].jacobian()
        return self._jacobians[rows]

    @property
    @override
    def orientation(self) -> Array:
        return self._orientation

    @override
    def is_grasping(self, geom: int, among: Mask = EVERYWHERE) -> Mask:
        grasping = np.array(np.broadcast_to(among, len(self._physics)))
        for index in np.flatnonzero(grasping).tolist():
            grasping[index] = self._physics[index].is_grasping(geom)
        return grasping

    def read(self) -> None:
        """Update `orientation`; all other arrays are views of the present state."""
        for quaternion, matrix in zip(self._orientation, self.gripper_matrix.reshape(-1, 9), strict=True):
            mujoco.mju_mat2Quat(quaternion, matrix)


class ArmBatch(SimulationBatch):
    """Simulates N copies of an arm task at once. It takes the settings of ArmEnv."""

    reset_info = MappingProxyType({"success": False})
    evaluates_divergence = True

    def __init__(self, task: str, num_envs: int, threads: int, **settings: Any) -> None:
        self._single = ArmEnv(task, render_mode="rgb_array", **settings)
        first, kind = self._single.physics, TASKS[task]
        self.spec, self.num_envs = self._single.environment_spec.without_pictures(), num_envs
        self._physics = [first, *(ArmPhysics(kind.bodies, first.model) for _ in range(num_envs - 1))]
        self.datas = [one.data for one in self._physics]
        self._threads = ThreadPool(threads)
        advance = [one.advance for one in self._physics]
        self._simulations = Simulations(first.model, self.datas, self._threads, advance, FASTEST)
        self._arms = Arms(self._simulations, self._physics)
        self._repeat = settings.get("action_repeat", 1)
        self._control = CONTROLS[settings.get("control", "end_effector_delta")](self._arms, self._repeat)
        self._task, self._reward = kind(self._arms), REWARDS[settings.get("reward", "sparse")]()
        self._generators = Generators(num_envs)

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        rows = list(seeds)
        for index, seed in seeds.items():
            environment.begin(self._physics[index], self._task, self._generators.seeded(index, seed))
        self._simulations.read(rows)
        self._arms.read()
        self._task.restart(rows)
        self._reward.reset(self._task.progress, rows)
        return self._observe()[rows]

    @np.errstate(all="ignore")
    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        """Simulate one action (N, A) in all environments; those that succeed or diverge stop before its end.

        seeds: environments that begin a new episode instead, with their seeds. Numerical errors give no warnings.
        """
        if seeds:
            self.begin(seeds)
        active, success = np.ones(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        active[list(seeds)] = False
        diverged = None
        for _ in range(self._repeat):
            self._advance(control, active)
            diverged = self._simulations.diverged()
            if diverged is not None:
                active &= ~diverged
            success |= np.asarray(self._task.is_success(active)) & active
            active &= ~success
            if not active.any():
                break
        terms = self._reward.terms(success, self._task.progress)
        if diverged is not None:
            terms = {name: np.where(diverged, 0.0, values) for name, values in terms.items()}
        rewards: Array = sum(terms.values(), np.zeros(self.num_envs))
        return BatchStep(self._observe(), rewards, success.copy(), diverged, success, terms)

    @override
    def render(self) -> Sequence[npt.NDArray[np.uint8]]:
        return list(self._single.draw(self.datas))

    @override
    def state_dict(self) -> StateDict:
        return {
            "simulations": self._simulations.state(),
            "generators": self._generators.states(),
            "task": {"held": self._task.held.copy()},
            "potential": {name: values.copy() for name, values in self._reward.potential.items()},
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._simulations.restore(state["simulations"])
        self._arms.read()
        self._generators.restore(state["generators"])
        self._task.held = np.array(state["task"]["held"])
        self._reward.potential = {name: np.array(values) for name, values in state["potential"].items()}

    @override
    def close(self) -> None:
        self._threads.close()
        self._single.close()

    def _advance(self, control: Array, active: npt.NDArray[np.bool_]) -> None:
        """Simulate one control period in the active environments."""
        indices = np.flatnonzero(active).tolist()
        rows = slice(None) if len(indices) == self.num_envs else indices
        self._simulations.command(self._control.targets(control[rows], rows), indices)
        self._simulations.advance(indices)
        self._arms.read()

    def _observe(self) -> npt.NDArray[Any]:
        parts = [part.astype(np.float32) for part in environment.observe(self._arms, self._task).values()]
        return np.concatenate(parts, axis=1)


def build(
    task: str,
    num_envs: int,
    *,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **settings: Any,
) -> BatchedEnvironment:
    """Return a vector environment of an arm task; settings as in ArmEnv."""
    if "sees" in settings:
        settings["cameras"] = environment.cameras_of(settings.get("cameras", ()), settings["sees"])
    pictures = {name: settings.pop(name) for name in ("cameras", "image_size", "render_mode") if name in settings}
    batch = ArmBatch(task, num_envs, choose_threads(threads, num_envs), **settings)
    return BatchedEnvironment(batch, autoreset_mode=autoreset_mode, **pictures)
