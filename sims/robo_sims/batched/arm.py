"""Our own arm tasks, controlled, observed and judged for all environments at once.

Episodes begin in the single environment's own reset, one environment after the other; what happens between is batched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from typing_extensions import override

from robo_rl.types import StateDict
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.physics import FASTEST, ArmPhysics
from robo_sims.batched.arm_tasks import TASKS
from robo_sims.batched.arms import CONTROLS, Arms
from robo_sims.batched.environment import Batch, BatchedEnvironment, BatchStep
from robo_sims.batched.simulations import Simulations
from robo_sims.batched.workers import Workers, choose_threads

Array = npt.NDArray[Any]


class ArmBatch(Batch):
    """Batch of an arm task."""

    reset_info = MappingProxyType({"success": False})
    judges_divergence = True

    def __init__(self, task: str, num_envs: int, threads: int, **settings: Any) -> None:
        first = _OneOfMany(task, None, **settings)
        model = first.physics.model
        self._singles = [first, *(_OneOfMany(task, model, **settings) for _ in range(num_envs - 1))]
        self.spec, self.num_envs = first.environment_spec, num_envs
        self._workers = Workers(threads)
        physics = [single.physics for single in self._singles]
        self.datas = [one.data for one in physics]
        self._simulations = Simulations(model, self.datas, self._workers, [one.advance for one in physics], FASTEST)
        self._arms = Arms(self._simulations, physics)
        self._control = CONTROLS[settings.get("control", "end_effector_delta")]
        self._repeat = settings.get("action_repeat", 1)
        self._task = TASKS[task](self._arms, [single.task for single in self._singles])
        self._potential: dict[str, Array] | None = None if settings.get("reward", "sparse") == "sparse" else {}

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        rows = [self._begin(index, seed) for index, seed in seeds.items()]
        self._simulations.read(seeds)
        self._arms.read_orientations()
        if self._potential is not None:
            potential = self._task.progress()
            for name, values in potential.items():
                self._potential.setdefault(name, values.copy())[list(seeds)] = values[list(seeds)]
        return np.stack(rows)

    @np.errstate(all="ignore")
    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        """Simulates until the next action is due; an environment rests once it has succeeded or diverged."""
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
            success |= self._task.is_success(active) & active
            active &= ~success
            if not active.any():
                break
        rewards, terms = self._reward(success, diverged)
        return BatchStep(self._observe(), rewards, success.copy(), diverged, success, terms)

    @override
    def render(self) -> Sequence[Array]:
        return [np.asarray(single.render()) for single in self._singles]

    @override
    def state_dict(self) -> StateDict:
        return {
            "simulations": self._simulations.state(),
            "generators": [single.np_random.bit_generator.state for single in self._singles],
            "task": {name: values.copy() for name, values in self._task.memory().items()},
            "potential": {name: values.copy() for name, values in (self._potential or {}).items()},
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._simulations.restore(state["simulations"])
        self._arms.read_orientations()
        for single, generator in zip(self._singles, state["generators"], strict=True):
            single.np_random.bit_generator.state = generator
        for name, values in self._task.memory().items():
            values[:] = state["task"][name]
        if self._potential is not None:
            self._potential = {name: np.array(values) for name, values in state["potential"].items()}

    @override
    def close(self) -> None:
        self._workers.close()
        for single in self._singles:
            single.close()

    def _begin(self, index: int, seed: int | None) -> Array:
        observation, _ = self._singles[index].reset(seed=seed)
        self._task.begin(index)
        return np.concatenate([observation[name] for name in self.spec.observation])

    def _advance(self, control: Array, active: Array) -> None:
        """Simulates one control period in the active environments."""
        indices = np.flatnonzero(active).tolist()
        rows = slice(None) if len(indices) == self.num_envs else indices
        self._simulations.command(self._control(self._arms, control[rows], rows, self._repeat), indices)
        self._simulations.advance(indices)
        self._arms.read_orientations()

    def _observe(self) -> Array:
        arms = self._arms
        parts = (
            arms.joint_position,
            arms.joint_velocity,
            arms.gripper_opening,
            arms.gripper_position,
            arms.gripper_quaternion,
            *self._task.observe(),
        )
        return np.concatenate([part.astype(np.float32) for part in parts], axis=1)

    def _reward(self, success: Array, diverged: Array | None) -> tuple[Array, dict[str, Array]]:
        """Returns rewards and terms: success alone, or also the gain in each potential; nothing where a simulation diverged."""
        terms = {"success": success.astype(np.float64)}
        if self._potential is not None:
            progress = self._task.progress()
            terms |= {name: values - self._potential[name] for name, values in progress.items()}
            self._potential = progress
        rewards = np.zeros(self.num_envs)
        for values in terms.values():
            if diverged is not None:
                values[diverged] = 0.0
            rewards += values
        return rewards, terms


class _OneOfMany(ArmEnv):
    """An arm environment that shares its compiled model with others."""

    def __init__(self, task: str, model: mujoco.MjModel | None, **settings: Any) -> None:
        self._shared = model
        super().__init__(task, render_mode="rgb_array", **settings)

    def _simulate(self, bodies: str) -> ArmPhysics:
        return ArmPhysics(bodies, self._shared)


def build(
    task: str,
    num_envs: int,
    *,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **settings: Any,
) -> BatchedEnvironment:
    """Returns `num_envs` environments of an arm task in one; the settings are ArmEnv's."""
    pictures = {name: settings.pop(name) for name in ("cameras", "image_size", "render_mode") if name in settings}
    batch = ArmBatch(task, num_envs, choose_threads(threads, num_envs), **settings)
    return BatchedEnvironment(batch, autoreset_mode=autoreset_mode, **pictures)
