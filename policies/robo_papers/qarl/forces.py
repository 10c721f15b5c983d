"""Forces on bodies of a MuJoCo model, applied by an adversary that acts against the robot's policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import ActionSpec, specification

AXES = "xyz"


class Forces:
    """Applies external forces to B bodies of an environment, along some axes of the world frame."""

    def __init__(self, environment: gymnasium.Env[Any, Any], bodies: Sequence[str], axes: str, limit: float) -> None:
        """Prepare the forces.

        Args:
            environment: MuJoCo environment.
            bodies: Names of the bodies; empty for the first body that moves.
            axes: Axes of the world frame, some of "xyz".
            limit: Largest force along each axis [N].

        Raises:
            InvalidSetting: There is no MuJoCo model, or axes or limit are out of range.
            UnknownName: There is no such body.
        """
        name = specification(environment).name
        if not environment.has_wrapper_attr("model") or not environment.has_wrapper_attr("data"):
            raise InvalidSetting(f"{name} has no MuJoCo model with bodies to push.", got="none", allowed="a MuJoCo environment")
        if not axes or len({*axes}) < len(axes) or not {*axes} <= {*AXES}:
            raise InvalidSetting("Forces have no such axes.", got=axes, allowed="some of x, y and z, such as xz")
        if isinstance(limit, bool) or not 0.0 <= limit < np.inf:
            raise InvalidSetting("The largest force is out of range.", got=limit, allowed="0 N or more")
        self._environment, model = environment, environment.get_wrapper_attr("model")
        names = [model.body(number).name for number in range(1, model.nbody)]
        for body in bodies:
            if body not in names:
                raise UnknownName(f"body of {name}", body, names)
        self._numbers = [model.body(body).id for body in bodies] or [1]
        self._axes, self.limit = [AXES.index(axis) for axis in axes], float(limit)
        labels = tuple(f"{model.body(number).name or number} {axis}" for number in self._numbers for axis in axes)
        ones, period = (1.0,) * len(labels), specification(environment).action.control_period
        units = (f"{self.limit:g} N",) * len(labels)
        self.action = ActionSpec(
            labels, low=tuple(-each for each in ones), high=ones, units=units, mode="unknown", control_period=period
        )
        """Of the adversary: shares of the limit."""

    def push(self, action: npt.NDArray[Any]) -> None:
        """Apply these forces from now on, until the next call; all other external forces are removed.

        action: (B x axes,) shares of the limit in [-1, 1], body by body.
        """
        forces = self._environment.get_wrapper_attr("data").xfrc_applied
        forces[:] = 0.0
        shares = np.clip(np.asarray(action, float), -1.0, 1.0).reshape(len(self._numbers), -1)
        for number, share in zip(self._numbers, shares, strict=True):
            forces[number, self._axes] = self.limit * share


class OpposedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment in which an adversary learns: actions are forces, the reward is negated, a frozen policy drives the robot."""

    def __init__(self, environment: gymnasium.Env[Any, Any], policy: Policy, forces: Forces) -> None:
        """Wrap an environment; raises SpecMismatch if the policy was made for another environment."""
        super().__init__(environment)
        spec = specification(environment)
        policy.environment_spec.require_interface(spec, what=f"The policy was made for another environment than {spec.name}")
        self._policy, self._forces, self._observation = policy, forces, dict[str, Any]()
        self.environment_spec = replace(spec, action=forces.action, success_rule=None, costs=())
        self.action_space = forces.action.space

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._observation, info = self.env.reset(seed=seed, options=options)
        self._policy.reset()
        return self._observation, info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._forces.push(action)
        self._observation, reward, terminated, truncated, info = self.env.step(
            self._policy.act(self._observation, deterministic=True)
        )
        if info.get("guard"):
            replan(self._policy)
        known = {name: value for name, value in info.items() if name not in ("success", "is_success")}
        return self._observation, -float(reward), terminated, truncated, known
