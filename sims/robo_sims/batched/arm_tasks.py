"""What the arm tasks observe, pay and call a success, over all environments at once: robo_sims.arm.tasks to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_sims.arm.rewards import closeness
from robo_sims.arm.tasks import peg_insert, pick, push, reach
from robo_sims.batched.arms import Arms, heading

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_NEAR = 0.1
"""[m] at which closeness is one half"""


class FreeBodies:
    """One freely moving body in each environment."""

    def __init__(self, arms: Arms, name: str) -> None:
        model = arms.simulations.model
        start = int(model.joint(name).dofadr[0])
        self.geom = int(model.geom(name).id)
        self.position: Array = arms.simulations.gather(lambda data: data.body(name).xpos).values  # (N, 3) [m]
        self.matrix: Array = arms.simulations.gather(lambda data: data.body(name).xmat).values.reshape(-1, 3, 3)
        self.velocity: Array = arms.simulations.qvel.values[:, start : start + 6]
        self._arms = arms

    def distance(self) -> Array:
        """(N,) [m] from the points between the finger pads."""
        return _length(self.position - self._arms.gripper_position)

    def is_grasped(self, index: int) -> bool:
        """Returns whether both finger pads touch the body in one environment."""
        return self._arms.physics[index].is_grasping(self.geom)


class Task:
    """Observes and judges; `singles` are the tasks of the single environments, in which episodes begin."""

    held_steps = 0
    """Control steps in a row for which the condition of success must hold."""

    def __init__(self, arms: Arms, singles: Sequence[Any]) -> None:
        self.arms, self._singles = arms, singles
        self.held = np.zeros(len(singles), np.int64)  # control steps in a row

    def begin(self, index: int) -> None:
        """Takes note of an episode that has begun in one environment."""
        self.held[index] = 0

    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """Returns what the task remembers from one control period to the next: the arrays themselves."""
        return {"held": self.held}

    def observe(self) -> list[Array]:
        """Returns the entries of the task's observation, (N, size) each."""
        raise NotImplementedError

    def is_success(self, active: Mask) -> Mask:
        """Judges the present states (N,) of the environments in the mask, once after each control period."""
        self.held[active] = np.where(self.holds(), self.held + 1, 0)[active]
        return self.held >= self.held_steps

    def holds(self) -> Mask:
        """Returns (N,) whether the condition of success holds now."""
        raise NotImplementedError

    def progress(self) -> dict[str, Array]:
        """Returns how far each part of the task is done, (N,) from 0 to 1."""
        raise NotImplementedError


class Reach(Task):
    """Goals in the air."""

    held_steps = reach.HELD_STEPS

    def __init__(self, arms: Arms, singles: Sequence[Any]) -> None:
        super().__init__(arms, singles)
        self._goal: Array = arms.simulations.gather(lambda data: data.mocap_pos[0]).values

    @override
    def observe(self) -> list[Array]:
        return [self._goal, self._goal - self.arms.gripper_position]

    @override
    def holds(self) -> Mask:
        return self._distance() < reach.TOLERANCE

    @override
    def progress(self) -> dict[str, Array]:
        return {"reach": _closeness(self._distance(), _NEAR)}

    def _distance(self) -> Array:
        return _length(self._goal - self.arms.gripper_position)


class CubeTask(Task):
    """Tasks with a cube."""

    def __init__(self, arms: Arms, singles: Sequence[Any]) -> None:
        super().__init__(arms, singles)
        self.cubes = FreeBodies(arms, "object")

    @override
    def observe(self) -> list[Array]:
        cubes, arms = self.cubes, self.arms
        turn = 4 * (heading(cubes.matrix) - arms.gripper_yaw)
        direction = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return [cubes.position, cubes.position - arms.gripper_position, direction, cubes.velocity]


class Push(CubeTask):
    """Cubes and marks on the table; success is a matter of one moment."""

    def __init__(self, arms: Arms, singles: Sequence[Any]) -> None:
        super().__init__(arms, singles)
        self._goal: Array = arms.simulations.gather(lambda data: data.mocap_pos[0]).values

    @override
    def observe(self) -> list[Array]:
        return [*super().observe(), self._goal[:, :2], self._to_mark()]

    @override
    def is_success(self, active: Mask) -> Mask:
        """Judges by place alone."""
        return self.holds()

    @override
    def holds(self) -> Mask:
        on_table = self.cubes.position[:, 2] < pick.HALF_SIZE + 0.005
        return on_table & (_length(self._to_mark()) < push.TOLERANCE)

    @override
    def progress(self) -> dict[str, Array]:
        return {
            "reach": _closeness(self.cubes.distance(), _NEAR),
            "push": _closeness(_length(self._to_mark()), _NEAR),
        }

    def _to_mark(self) -> Array:
        return self._goal[:, :2] - self.cubes.position[:, :2]


class Pick(CubeTask):
    """Cubes to be lifted."""

    held_steps = pick.HELD_STEPS

    @override
    def holds(self) -> Mask:
        """Returns whether a cube is held high; contacts are looked at only where it is high."""
        high = self.cubes.position[:, 2] >= pick.HALF_SIZE + pick.LIFT
        lifted = high & (self.cubes.distance() < pick.GRASP_RADIUS)
        for index in np.flatnonzero(lifted).tolist():
            lifted[index] = self.cubes.is_grasped(index)
        return lifted

    @override
    def progress(self) -> dict[str, Array]:
        grasped = np.array([self.cubes.is_grasped(index) for index in range(len(self.held))])
        height = (self.cubes.position[:, 2] - pick.HALF_SIZE) / pick.LIFT
        return {
            "reach": _closeness(self.cubes.distance(), _NEAR),
            "grasp": grasped.astype(np.float64),
            "lift": np.clip(height, 0.0, 1.0) * grasped,
        }


class PegInsert(Task):
    """Pegs and holes."""

    held_steps = peg_insert.HELD_STEPS

    def __init__(self, arms: Arms, singles: Sequence[Any]) -> None:
        super().__init__(arms, singles)
        self._pegs = FreeBodies(arms, "peg")
        self._holes: Array = arms.simulations.gather(lambda data: data.mocap_pos[0]).values
        self.hole_yaw = np.zeros(len(singles))

    @override
    def begin(self, index: int) -> None:
        super().begin(index)
        self.hole_yaw[index] = self._singles[index].hole_yaw

    @override
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        return {**super().memory(), "hole_yaw": self.hole_yaw}

    @override
    def observe(self) -> list[Array]:
        tip, rim, turn = self._tip(), self._rim(), 4 * (self.hole_yaw - heading(self._pegs.matrix))
        direction = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return [tip, self._pegs.matrix[:, :, 2], rim, rim - tip, direction, self._pegs.velocity]

    @override
    def holds(self) -> Mask:
        below = self._rim() - self._tip()
        sideways = np.hypot(below[:, 0], below[:, 1])
        return (sideways < 2 * peg_insert.CLEARANCE) & (below[:, 2] >= peg_insert.DEPTH)

    @override
    def progress(self) -> dict[str, Array]:
        below = self._rim() - self._tip()
        sideways = np.hypot(below[:, 0], below[:, 1])
        depth = np.clip(below[:, 2] / peg_insert.DEPTH, 0.0, 1.0)
        inside = sideways < 2 * peg_insert.CLEARANCE
        return {"align": _closeness(sideways, 0.02), "insert": np.where(inside, depth, 0.0)}

    def _tip(self) -> Array:
        return np.asarray(self._pegs.position - peg_insert.PEG[2] * self._pegs.matrix[:, :, 2])

    def _rim(self) -> Array:
        return np.asarray(self._holes + np.array([0.0, 0.0, peg_insert.HEIGHT]))


def _length(vectors: Array) -> Array:
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))  # the dot product that np.linalg.norm takes of one vector


def _closeness(distances: Array, scale: float) -> Array:
    """Returns `closeness` of each; as numbers, because the power of an array may round otherwise.

    The bound is for diverged simulations, whose numbers count for nothing: a power must not overflow.
    """
    return np.array([closeness(min(distance, 1e100), scale) for distance in distances.tolist()])


TASKS: dict[str, type[Task]] = {"ArmReach-v0": Reach, "ArmPush-v0": Push, "ArmPick-v0": Pick, "ArmPegInsert-v0": PegInsert}
