"""The wrapper `filtered`, a safety filter: the action nearest to the policy's that keeps all barriers.

Ames, Xu, Grizzle and Tabuada 2017, "Control Barrier Function Based Quadratic Programs for Safety Critical Systems",
arXiv:1609.06408. A quadratic programme in the action u, solved by quadprog (Goldfarb and Idnani 1983):

    min |u - u_policy|^2   subject to   G u >= b + margin,   -1 <= u <= 1

The environment declares G and b in an attribute `barriers` (robo_sims.simulation.Barriers). If no action keeps all of them
the filter brakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting, optional
from robo_rl.evaluation.measures import Measure, measures_of
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import MEASURES
from robo_sims.simulation import Barriers

Array = npt.NDArray[np.float64]
UNCHANGED = 1e-6
"""Largest change of an action's element that counts as no change."""
GRIPPER, DISPLACED = "end_effector_position", ("dx", "dy", "dz")
BOX_APPROACH = 0.5
"""Largest share of the distance to a wall that a step may take away."""
ACTIVE, BRAKED = "filter_active", "filter_braked"


class BoxBarriers:
    """Barriers of a box in which the gripper stays: a step takes away at most BOX_APPROACH of the distance to a wall.

    They are computed from observed positions and actions that are displacements, so that they serve the simulated arm and
    robots.
    """

    def __init__(self, spec: EnvironmentSpec, box: Sequence[Sequence[float]]) -> None:
        """Raise InvalidSetting unless positions are observed, actions are displacements, and the box has an inside."""
        names = spec.action.names
        if GRIPPER not in spec.observation or spec.action.mode != "end_effector_delta" or not {*DISPLACED} <= {*names}:
            raise InvalidSetting(
                f"{spec.name} does not move a gripper by displacements.",
                got=f"actions {', '.join(names)}, mode {spec.action.mode}",
                allowed=f"actions {', '.join(DISPLACED)} of mode end_effector_delta, and the observation {GRIPPER}",
            )
        corners = np.asarray(box, float)
        if corners.shape != (2, 3) or not (corners[0] < corners[1]).all():
            raise InvalidSetting("The box has no inside.", got=box, allowed="[[x, y, z], [x, y, z]] in m, low before high")
        self.low, self.high = corners
        self.position = (self.low + self.high) / 2
        """(3,) [m] of the gripper, as observed last."""
        rows = np.zeros((3, len(names)))
        rows[range(3), [names.index(name) for name in DISPLACED]] = 1.0
        self._gradient = np.concatenate((rows, -rows))
        self._brake = np.array(spec.action.to_physical(np.zeros(len(names))), float)
        axes = [names.index(name) for name in DISPLACED]
        self._brake[axes] = 0.0
        self._fastest = 0.9 * np.concatenate((np.asarray(spec.action.high)[axes], -np.asarray(spec.action.low)[axes]))

    def __call__(self) -> Barriers:
        """Return the walls as seen from the newest position; outside the box back to it, as fast as allowed."""
        distances = np.concatenate((self.position - self.low, self.high - self.position))
        return Barriers(self._gradient, np.minimum(-BOX_APPROACH * distances, self._fastest), self._brake)


class FilteredEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that executes the filtered action, and reports it as a robot's guard does."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        *,
        box: Sequence[Sequence[float]] | None = None,
        margin: float = 0.0,
        error: float = 0.0,
        is_on: bool = True,
    ) -> None:
        """Raise InvalidSetting for an environment without barriers, MissingExtra without quadprog.

        box: low and high corner [m] of a box for the gripper, instead of the environment's own barriers (`BoxBarriers`).
        margin: added to each bound, for a disturbance of at most that. error: relative error of the filter's model of the
        action's effect, for experiments. is_on: False only reports, for a control.
        """
        super().__init__(environment)
        spec = specification(environment)
        self._box = None if box is None else BoxBarriers(spec, box)
        if self._box is None and not environment.has_wrapper_attr("barriers"):
            raise InvalidSetting(
                f"{spec.name} declares no barriers.",
                got="no attribute barriers",
                allowed="an environment with barriers, such as hazards/Point-v0, or a box for the gripper",
                fix="robo_sims.simulation.Barriers describes them",
            )
        for name, value in {"margin": margin, "error": error}.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1.0 < value < np.inf:
                raise InvalidSetting(f"{name} of the filter is out of range.", got=value, allowed="a number above -1")
        with optional("The safety filter", "quadprog", "safety", of="robo-rl-papers"):
            from quadprog import solve_qp
        self._solve: Callable[..., Any] = solve_qp
        self._barriers: Callable[[], Barriers] = self._box or environment.get_wrapper_attr("barriers")
        self._margin, self._error, self._is_on = margin, error, is_on
        self._action = spec.action
        self._half = (np.asarray(spec.action.high, float) - np.asarray(spec.action.low, float)) / 2
        self._middle = (np.asarray(spec.action.high, float) + np.asarray(spec.action.low, float)) / 2
        self._steps = self._active = self._braked = 0
        self.measures = (
            *measures_of(environment),
            Measure(ACTIVE, "%", "of the steps, in which the filter changed the action"),
            Measure(BRAKED, "1", "steps in which no action kept all barriers, and the filter braked"),
        )

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = self._active = self._braked = 0
        observation, info = self.env.reset(seed=seed, options=options)
        self._look(observation)
        return observation, info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        proposed = np.asarray(action, np.float64)
        safe, braked = self.safe(proposed)
        changed = bool(np.abs(safe - proposed).max() > UNCHANGED)
        self._steps, self._active, self._braked = self._steps + 1, self._active + changed, self._braked + braked
        executed = safe.astype(np.float32) if changed and self._is_on else np.asarray(action)
        observation, reward, terminated, truncated, info = self.env.step(executed)
        self._look(observation)
        measured = {ACTIVE: 100.0 * self._active / self._steps, BRAKED: float(self._braked)}
        info = {**info, MEASURES: {**info.get(MEASURES, {}), **measured}}
        if changed and self._is_on:
            reasons = [*info.get("guard", ()), "filter braked" if braked else "filter"]  # those of a robot's guard come first
            info |= {"executed_action": info.get("executed_action", executed), "guard": reasons}
        return observation, reward, terminated, truncated, info

    def _look(self, observation: Mapping[str, Any]) -> None:
        if self._box is not None:
            self._box.position = np.asarray(observation[GRIPPER], float)

    def safe(self, action: Array) -> tuple[Array, bool]:
        """Filter an action (A,) in [-1, 1].

        Returns:
            The nearest action that keeps all barriers, and False. If there is none: braking, and True.
        """
        barriers = self._barriers()
        gradient = barriers.gradient * (1.0 + self._error)
        bound = barriers.bound + self._margin - gradient @ self._middle
        scaled, box = gradient * self._half, np.eye(len(action))
        if (scaled @ action >= bound - UNCHANGED).all():
            return action, False
        rows, limits = np.vstack((scaled, box, -box)), np.concatenate((bound, -np.ones(2 * len(action))))
        try:
            found = self._solve(box, action, rows.T, limits)[0]
        except ValueError:  # quadprog: "constraints are inconsistent, no solution"
            return np.clip((barriers.brake - self._middle) / self._half, -1.0, 1.0), True
        return np.clip(found, -1.0, 1.0), False


@dataclass(frozen=True)
class FilteredWrapper(EnvironmentWrapper):
    """Settings of the wrapper `filtered`: execute the action nearest to the policy's that keeps all barriers."""

    box: Sequence[Sequence[float]] | None = None
    """Low and high corner [m] of a box for the gripper, instead of the environment's own barriers."""
    margin: float = 0.0
    """Number added to each bound of the barriers, against a disturbance of at most this size."""
    error: float = 0.0
    """Relative error of the filter's model of the action's effect, for experiments."""
    is_on: bool = True
    """False executes actions unchanged and only reports the filter's, for a control condition."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> FilteredEnv:
        return FilteredEnv(environment, box=self.box, margin=self.margin, error=self.error, is_on=self.is_on)
