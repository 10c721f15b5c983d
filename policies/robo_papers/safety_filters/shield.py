"""The wrapper `shielded`, a predictive shield: an action passes if braking after it would still cost nothing.

Bastani 2021, "Safe Reinforcement Learning with Nonlinear Dynamics via Model Predictive Shielding", arXiv:1905.10691,
algorithm 1, with braking as the backup policy. The model is a copy of the simulation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.measures import Measure, measures_of
from robo_rl.spec.environment import specification
from robo_rl.types import MEASURES
from robo_sims.simulation import Simulation

ACTIVE = "shield_active"


class ShieldedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that brakes instead of an action after which braking would come too late."""

    def __init__(self, environment: gymnasium.Env[Any, Any], *, horizon: int = 10, is_on: bool = True) -> None:
        """Raise InvalidSetting for an environment whose simulation cannot be copied, or has no costs or no brake.

        horizon: steps of braking that are simulated after each action. is_on: False only reports, for a control.
        """
        super().__init__(environment)
        spec = specification(environment)
        if not spec.costs or not all(environment.has_wrapper_attr(name) for name in ("simulation", "barriers")):
            raise InvalidSetting(
                f"{spec.name} cannot be shielded.",
                got="no costs, no simulation to copy, or no brake",
                allowed="an environment with costs and barriers, such as hazards/Point-v0",
                fix="robo_sims.simulation.Barriers describes a brake",
            )
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise InvalidSetting("The shield's horizon is out of range.", got=horizon, allowed="1 step or more")
        self._action, self._horizon, self._is_on = spec.action, horizon, is_on
        self._steps = self._active = 0
        self.measures = (*measures_of(environment), Measure(ACTIVE, "%", "of the steps, in which the shield braked instead"))

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = self._active = 0
        return self.env.reset(seed=seed, options=options)

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        is_safe = self.is_safe(action)
        brakes = not is_safe and self._is_on
        executed = self._brake(self.env.get_wrapper_attr("simulation")) if brakes else action
        self._steps, self._active = self._steps + 1, self._active + (not is_safe)
        observation, reward, terminated, truncated, info = self.env.step(executed)
        info = {**info, MEASURES: {**info.get(MEASURES, {}), ACTIVE: 100.0 * self._active / self._steps}}
        if brakes:
            info |= {"executed_action": executed, "guard": [*info.get("guard", ()), "shield"]}
        return observation, reward, terminated, truncated, info

    def is_safe(self, action: Any) -> bool:
        """Return True if neither the action nor `horizon` steps of braking after it cause a cost.

        A copy of the simulation takes these steps.
        """
        copied: Simulation = copy.deepcopy(self.env.get_wrapper_attr("simulation"))
        for number in range(1 + self._horizon):
            step = copied.step(self._action.to_physical(self._brake(copied) if number else action))
            if any(step.costs.values()):
                return False
            if step.terminated:
                break
        return True

    def _brake(self, simulation: Simulation) -> Any:
        """Return the backup's action in [-1, 1]."""
        assert simulation.barriers is not None
        action = self._action.to_normalized(simulation.barriers().brake)
        return np.clip(action, -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class ShieldedWrapper(EnvironmentWrapper):
    """Settings of the wrapper `shielded`: brake instead of an action after which braking would come too late."""

    horizon: int = 10
    """Steps of braking that are simulated after each action."""
    is_on: bool = True
    """False executes actions unchanged and only reports the shield's verdict, for a control condition."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> ShieldedEnv:
        return ShieldedEnv(environment, horizon=self.horizon, is_on=self.is_on)
