"""Observations and rewards of suite tasks for N environments at once.

The task's own code runs once over arrays of all environments. Rewards whose code needs plain numbers (`float`, `max`, `all`)
are written here again, with the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from dm_control.suite import ball_in_cup, finger, manipulator, stacker
from dm_control.utils import rewards
from typing_extensions import override

from robo_sims.dm_control_tasks.batched_array import BatchedArray
from robo_sims.dm_control_tasks.physics import BatchedData, physics_of_all
from robo_sims.dm_control_tasks.simulation import DMControlSimulation

Array = npt.NDArray[Any]

NOT_VECTORIZABLE = frozenset({"dog-fetch"})
"""Tasks whose code calls functions of MuJoCo; it runs once for each environment."""


class TaskEvaluator(Protocol):
    """Computes observations and rewards of N environments, in the states at the last call of `read`."""

    def read(self) -> None:
        """Read the current states of all environments."""

    def observe(self) -> Array:
        """Return the observations of the present states, (N, D) float32; a new array."""

    def reward(self) -> Array:
        """Return the rewards of the present states, (N,) float64; a new array."""


class VectorizedEvaluator(TaskEvaluator):
    """Runs the task's code once for all environments, with the constants of the first environment."""

    def __init__(self, simulations: Sequence[DMControlSimulation]) -> None:
        first = simulations[0]
        self._task = first.source.task
        self._data = BatchedData([simulation.mujoco[1] for simulation in simulations])
        self._physics = physics_of_all(first.source.physics, self._data)
        self._reward = _REWARDS.get(type(self._task), _own)
        self._shape = len(simulations), first.spec.observation.size

    @override
    def read(self) -> None:
        self._data.read()

    @override
    def observe(self) -> Array:
        observation = self._task.get_observation(self._physics)
        vectors: Array = np.empty(self._shape, np.float32)
        parts = [np.asarray(value.view(BatchedArray).ravel()) for value in observation.values()]
        np.concatenate(parts, out=vectors.T, casting="same_kind")
        return vectors

    @override
    def reward(self) -> Array:
        return np.array(self._reward(self._task, self._physics), np.float64)


class PerEnvironmentEvaluator(TaskEvaluator):
    """Runs the task's code for each environment in turn."""

    def __init__(self, simulations: Sequence[DMControlSimulation]) -> None:
        self._simulations = simulations

    @override
    def read(self) -> None:
        """Do nothing: each task reads its own simulation."""

    @override
    def observe(self) -> Array:
        return np.stack([row(s.flat(s.source.task.get_observation(s.source.physics))) for s in self._simulations])

    @override
    def reward(self) -> Array:
        return np.array([s.source.task.get_reward(s.source.physics) for s in self._simulations], np.float64)


def row(observation: dict[str, Array]) -> Array:
    """Return the observation of one environment as a vector (D,)."""
    return np.concatenate([value.reshape(-1) for value in observation.values()])


def _own(task: Any, physics: Any) -> Array:
    reward: Array = task.get_reward(physics)
    return reward


def _spin(_: finger.Spin, physics: Any) -> Array:
    slow: Array = physics.hinge_velocity() <= -finger._SPIN_VELOCITY
    return slow


def _turn(_: finger.Turn, physics: Any) -> Array:
    inside: Array = physics.dist_to_target() <= 0
    return inside


def _catch(_: ball_in_cup.BallInCup, physics: Any) -> Array:
    room = physics.named.model.site_size["target", [0, 2]] - physics.named.model.geom_size["ball", 0]
    return np.asarray((abs(physics.ball_to_target()) < room[:, np.newaxis]).all(axis=0))


def _bring(task: manipulator.Bring, physics: Any) -> Array:
    if not task._use_peg:
        ball: Array = task._ball_reward(physics)
        return ball
    pairs = (("peg_grasp", "grasp"), ("peg_pinch", "pinch"), ("peg", "target_peg"), ("target_peg_tip", "peg_tip"))
    grasp, pinch, bring, bring_tip = (task._is_close(physics.site_distance(*pair)) for pair in pairs)
    return np.asarray(np.maximum((bring + bring_tip) / 2, (grasp + pinch) / 2 / 3))


def _stack(task: stacker.Stack, physics: Any) -> Array:
    nearest = np.minimum.reduce([np.asarray(physics.site_distance(name, "target")) for name in task._box_names])
    size = physics.named.model.geom_size["target", 0]
    hand = physics.site_distance("grasp", "target")
    is_far = rewards.tolerance(hand, bounds=(0.1, np.inf), margin=stacker._CLOSE)
    product: Array = rewards.tolerance(nearest.view(BatchedArray), margin=2 * size) * is_far
    return product


_REWARDS: dict[type, Callable[[Any, Any], Array]] = {
    finger.Spin: _spin,
    finger.Turn: _turn,
    ball_in_cup.BallInCup: _catch,
    manipulator.Bring: _bring,
    stacker.Stack: _stack,
}
