"""Observations and rewards of Gymnasium's MuJoCo tasks for N environments, bit-identical to Gymnasium's.

Sums run over contiguous rows, in numpy's order for one array; a control cost stays float32 if the source computes it from a
float32 action. `np.float_power` rounds like the power of a Python number.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_sims.batched.simulations import Simulations

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
StepResult = tuple[Array, Mask, dict[str, Array]]
"""Rewards (N,), terminations (N,), and reward terms by name, each (N,)."""


class GymnasiumTask:
    """Base class of Gymnasium's MuJoCo tasks: it computes observations and rewards for N environments at once.

    Constants, such as weights of the reward, are read from `source`, the environment of Gymnasium.
    """

    observes_forces: ClassVar[bool] = False
    """True if contact forces are observed; the batch then calls mj_rnePostConstraint, which computes them."""
    hidden: ClassVar[int] = 1
    """Number of leading positions that are not observed."""
    velocity_limit: ClassVar[float | None] = None
    """Limit to which the absolute value of observed velocities is clipped; None for no clipping."""

    def __init__(self, source: Any, simulations: Simulations) -> None:
        self._source, self._simulations = source, simulations
        self._qpos, self._qvel = simulations.qpos.values, simulations.qvel.values  # (N, nq), (N, nv) of the present state
        self._forces = self._gather_forces()
        self._period = float(source.dt)

    def place(self) -> Array:
        """Return the position (N,) [m] whose change during a step is the forward reward, by default x of the root.

        A new array.
        """
        return self._qpos[:, 0].copy()

    def observe(self) -> Array:
        """Return observations (N, D) float32, a new array."""
        return self._side_by_side(self._qpos[:, self.hidden :], self._observed_velocity())

    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        """Return rewards, terminations and reward terms of a step.

        before, after: `place()` (N,) before and after the step. action: control values (N, A) float32.
        """
        raise NotImplementedError

    def _gather_forces(self) -> Array:
        return self._gather("cfrc_ext") if self.observes_forces else np.empty(0)

    def _gather(self, name: str, start: int = 0) -> Array:
        """Return an array (N, size) of a field of MjData, from row `start` on; it is updated after every step."""
        return self._simulations.gather(lambda data: getattr(data, name)[start:]).values

    def _body(self, name: str | int) -> Array:
        """Return the position (N, 3) [m] of a body; it is updated after every step."""
        index = self._simulations.model.body(name).id
        return self._simulations.gather(lambda data: data.xpos[index]).values

    def _observed_velocity(self) -> Array:
        limit = self.velocity_limit
        return self._qvel if limit is None else np.minimum(np.maximum(self._qvel, -limit), limit)

    def _side_by_side(self, *parts: Array) -> Array:
        whole: Array = np.empty((len(self._qpos), sum(part.shape[1] for part in parts)), np.float32)
        return np.concatenate(parts, axis=1, out=whole, casting="same_kind")

    def _velocity(self, before: Array, after: Array) -> Array:
        return (after - before) / self._period

    def _control_cost(self, action: Array) -> Array:
        """Return the control cost (N,), in the precision of the action (N, A)."""
        return np.asarray(self._source._ctrl_cost_weight * np.add.reduce(np.square(action), axis=1))

    def _never(self) -> Mask:
        return np.zeros(len(self._qpos), np.bool_)


class Runner(GymnasiumTask):
    """HalfCheetah, and base of Swimmer: rewards speed, penalises control."""

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        forward = self._source._forward_reward_weight * self._velocity(before, after)
        cost = self._control_cost(action)
        return forward - cost, self._never(), {"forward": forward, "ctrl": -cost.astype(np.float64)}


class Swimmer(Runner):
    """Swimmer: like the runner, but neither x nor y is observed."""

    hidden = 2


class Healthy(GymnasiumTask):
    """Base of walking tasks: rewards speed and being healthy, subtracts `costs`, terminates when unhealthy."""

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        healthy, costs = self.is_healthy(), self.costs(action)
        forward = self._source._forward_reward_weight * self._velocity(before, after)
        survive = healthy * self._source._healthy_reward
        terms = {name: -cost.astype(np.float64) for name, cost in costs.items()}
        return forward + survive - sum(costs.values()), ~healthy, {"forward": forward, "survive": survive, **terms}

    def costs(self, action: Array) -> dict[str, Array]:
        """Return name of a penalty -> its values (N,) in a step with actions (N, A)."""
        return {"ctrl": self._control_cost(action)}

    def is_healthy(self) -> Mask:
        """Return True for environments in a healthy state (N,)."""
        return _between(self._qpos[:, 2], self._source._healthy_z_range)


class Walker(Healthy):
    """The task Walker2d."""

    velocity_limit = 10.0

    @override
    def is_healthy(self) -> Mask:
        height, angle = self._qpos[:, 1], self._qpos[:, 2]
        return _between(height, self._source._healthy_z_range) & _between(angle, self._source._healthy_angle_range)


class Hopper(Walker):
    """Hopper: healthy if also all state values are within limits."""

    @override
    def is_healthy(self) -> Mask:
        limits = self._source._healthy_state_range
        moderate = _between(self._qpos[:, 2:], limits).all(axis=1) & _between(self._qvel, limits).all(axis=1)
        return super().is_healthy() & moderate


class Ant(Healthy):
    """The task Ant. Contact forces are part of its observation, and the reward has a penalty on them."""

    observes_forces = True
    hidden = 2

    def __init__(self, source: Any, simulations: Simulations) -> None:
        super().__init__(source, simulations)
        self._torso = self._body(source._main_body)

    @override
    def place(self) -> Array:
        """Return x of the torso (N,) [m] at the beginning of the last substep, as Gymnasium reads it."""
        return self._torso[:, 0].copy()

    @override
    def observe(self) -> Array:
        """Return (N, D) float32: positions, velocities, and clipped forces on all bodies but the world."""
        return self._side_by_side(self._qpos[:, 2:], self._qvel, self._clipped()[:, 6:])

    @override
    def costs(self, action: Array) -> dict[str, Array]:
        contact = self._source._contact_cost_weight * np.square(self._clipped()).sum(axis=1)
        return {**super().costs(action), "contact": contact}

    @override
    def is_healthy(self) -> Mask:
        """Return True for environments in a healthy state (N,); unlike in other tasks the limits themselves are healthy."""
        lowest, highest = self._source._healthy_z_range
        return np.asarray((self._qpos[:, 2] >= lowest) & (self._qpos[:, 2] <= highest))

    def _clipped(self) -> Array:
        low, high = self._source._contact_force_range
        return np.asarray(np.minimum(np.maximum(self._forces, low), high))


class Humanoid(Healthy):
    """Humanoid: observes inertia, velocity and forces of every body."""

    observes_forces = True
    hidden = 2

    def __init__(self, source: Any, simulations: Simulations) -> None:
        super().__init__(source, simulations)
        self._inertia, self._velocity_of_bodies = self._gather("cinert", 1), self._gather("cvel", 1)
        self._torque = self._gather("qfrc_actuator", 6)
        self._masses = simulations.model.body_mass
        self._middles = self._gather("xipos").reshape(len(self._qpos), -1, 3)

    @override
    def place(self) -> Array:
        """Return x of the whole body's centre of mass (N,) [m] at the beginning of the last substep, as Gymnasium reads it."""
        return np.asarray(np.einsum("b,nb->n", self._masses, self._middles[:, :, 0]) / self._masses.sum())

    @override
    def observe(self) -> Array:
        """Return (N, D) float32: positions, velocities, and inertia, velocity, torque and forces of all bodies."""
        parts = (self._inertia, self._velocity_of_bodies, self._torque, self._forces[:, 6:])
        return self._side_by_side(self._qpos[:, 2:], self._qvel, *parts)

    @override
    def costs(self, action: Array) -> dict[str, Array]:
        contact = self._impact(self._source._contact_cost_weight, self._source._contact_cost_range)
        return {"ctrl": self._control_cost(action.astype(np.float64)), "contact": contact}

    def _impact(self, weight: float, limits: tuple[float, float]) -> Array:
        return np.asarray(np.minimum(np.maximum(weight * np.square(self._forces).sum(axis=1), limits[0]), limits[1]))


class HumanoidStandup(Humanoid):
    """HumanoidStandup: rewards the height of the torso."""

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        source = self._source
        up = self._qpos[:, 2] / source.model.opt.timestep
        control = self._control_cost(action.astype(np.float64))
        impact = self._impact(source._impact_cost_weight, source._impact_cost_range)
        return up - control - impact + 1, self._never(), {"linup": up, "quadctrl": -control, "impact": -impact}


class InvertedPendulum(GymnasiumTask):
    """InvertedPendulum: rewards every step with the pole upright."""

    hidden = 0

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        fallen = ~(np.abs(self._qpos[:, 1]) <= 0.2)
        survive = (~fallen).astype(np.float64)
        return survive, fallen, {"survive": survive.copy()}


class InvertedDoublePendulum(GymnasiumTask):
    """InvertedDoublePendulum: rewards a raised tip, penalises distance and speed."""

    def __init__(self, source: Any, simulations: Simulations) -> None:
        super().__init__(source, simulations)
        self._tip = simulations.gather(lambda data: data.site_xpos[0]).values
        self._constraint = simulations.gather(lambda data: data.qfrc_constraint[:1]).values

    @override
    def observe(self) -> Array:
        angles = self._qpos[:, 1:]
        clipped = [np.minimum(np.maximum(part, -10), 10) for part in (self._qvel, self._constraint)]
        return self._side_by_side(self._qpos[:, :1], np.sin(angles), np.cos(angles), *clipped)

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        """Return the result of a step; the two penalties are no reward terms, as in Gymnasium."""
        fallen = self._tip[:, 2] <= 1
        survive = self._source._healthy_reward * (~fallen).astype(np.float64)
        distance = 0.01 * np.float_power(self._tip[:, 0], 2) + np.float_power(self._tip[:, 2] - 2, 2)
        speed = 1e-3 * np.float_power(self._qvel[:, 1], 2) + 5e-3 * np.float_power(self._qvel[:, 2], 2)
        return survive - distance - speed, fallen, {"survive": survive}


class Reacher(GymnasiumTask):
    """Reacher: rewards closeness of the fingertip to the target."""

    def __init__(self, source: Any, simulations: Simulations) -> None:
        super().__init__(source, simulations)
        self._fingertip, self._target = self._body("fingertip"), self._body("target")

    @override
    def observe(self) -> Array:
        angles, way = self._qpos[:, :2], self._fingertip - self._target
        return self._side_by_side(np.cos(angles), np.sin(angles), self._qpos[:, 2:], self._qvel[:, :2], way[:, :2])

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        source = self._source
        distance = -_length(self._fingertip - self._target) * source._reward_dist_weight
        control = -np.add.reduce(np.square(action), axis=1) * source._reward_control_weight
        return distance + control, self._never(), {"dist": distance, "ctrl": control.astype(np.float64)}


class Pusher(GymnasiumTask):
    """Pusher: rewards closeness of the object to the goal, and of the fingertip to the object."""

    def __init__(self, source: Any, simulations: Simulations) -> None:
        super().__init__(source, simulations)
        self._tip, self._object, self._goal = (self._body(name) for name in ("tips_arm", "object", "goal"))

    @override
    def observe(self) -> Array:
        return self._side_by_side(self._qpos[:, :7], self._qvel[:, :7], self._tip, self._object, self._goal)

    @override
    def evaluate(self, before: Array, after: Array, action: Array) -> StepResult:
        source = self._source
        near = -_length(self._object - self._tip) * source._reward_near_weight
        distance = -_length(self._object - self._goal) * source._reward_dist_weight
        control = -np.add.reduce(np.square(action), axis=1) * source._reward_control_weight
        terms = {"dist": distance, "ctrl": control.astype(np.float64), "near": near}
        return distance + control + near, self._never(), terms


def _between(values: Array, limits: tuple[float, float]) -> Mask:
    return (limits[0] < values) & (values < limits[1])


def _length(vectors: Array) -> Array:
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))  # same bits as np.linalg.norm of one vector


TASKS: dict[str, type[GymnasiumTask]] = {
    "HalfCheetah-v5": Runner,
    "Hopper-v5": Hopper,
    "Walker2d-v5": Walker,
    "Ant-v5": Ant,
    "Humanoid-v5": Humanoid,
    "HumanoidStandup-v5": HumanoidStandup,
    "Swimmer-v5": Swimmer,
    "InvertedPendulum-v5": InvertedPendulum,
    "InvertedDoublePendulum-v5": InvertedDoublePendulum,
    "Reacher-v5": Reacher,
    "Pusher-v5": Pusher,
}
