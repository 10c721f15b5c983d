"""Residual RL: Johannink et al. 2019, "Residual Reinforcement Learning for Robot Control", arXiv:1812.03201.

The environment executes u = pi_H(s) + scale * a: the action of a base policy pi_H, written by hand or trained before, and a
bounded correction a in [-1, 1]. Any learner of continuous actions can learn the correction.

Differs from the paper: the correction is bounded by `scale`, and u is cut to [-1, 1]; the base's action is observed, because
a base with memory would leave the correction without a Markov state. The actor's last layer is not set to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import Array

BASE_ACTION = "base_action"
SCALE = 0.2


class ResidualEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper whose actions are corrections: the environment executes the base policy's action plus the scaled action."""

    def __init__(
        self, environment: gymnasium.Env[Any, Any], base_for: Callable[[int], Policy], *, scale: float = SCALE
    ) -> None:
        """Wrap an environment.

        Args:
            environment: Environment with continuous actions.
            base_for: Returns the base policy, given the seed of an episode.
            scale: Largest correction, as a share of half the range of each element of the action; above 0, at most 2.

        Raises:
            InvalidSetting: Actions are discrete, or the scale is out of its range.
        """
        super().__init__(environment)
        self._inner, self._base_for, self._scale = specification(environment), base_for, scale
        if self._inner.action.is_discrete or not 0 < scale <= 2:
            got = f"scale {scale}, actions of the mode {self._inner.action.mode!r}"
            raise InvalidSetting("There is no residual.", got=got, allowed="a scale above 0, to 2, of continuous actions")
        self.environment_spec = _residual(self._inner, scale)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self._base: Policy | None = None
        self._wanted: Array = np.zeros(0, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Reset the environment, and with it the base policy.

        Raises SpecMismatch if the base policy needs another environment.
        """
        seed = int(self.unwrapped.np_random.integers(1 << 31)) if seed is None else seed
        observation, info = super().reset(seed=seed, options=options)
        self._base = begun(self._base_for, seed, self._inner)
        return self._with_base(observation), info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Execute the base's action plus `scale` times a correction (A,) in [-1, 1].

        If a robot reports the action that it executed, `info["executed_action"]` is the correction that leads to this action.
        """
        wanted = self._wanted
        correction = self.environment_spec.action.validate(action)
        executed = np.clip(wanted + self._scale * np.asarray(correction), -1.0, 1.0).astype(self._inner.action.dtype)
        observation, reward, terminated, truncated, info = super().step(executed)
        if "executed_action" in info:
            correction_executed = (info["executed_action"] - wanted) / self._scale
            info = {**info, "executed_action": np.clip(correction_executed, -1.0, 1.0).astype(self._inner.action.dtype)}
        if info.get("guard") and self._base is not None:
            replan(self._base)
        return self._with_base(observation), reward, terminated, truncated, info

    def _with_base(self, observation: Observation) -> Observation:
        assert self._base is not None
        self._wanted = np.clip(self._base.act(observation, deterministic=True), -1.0, 1.0).astype(self._inner.action.dtype)
        return {**observation, BASE_ACTION: self._wanted.astype(np.float32)}


def begun(base_for: Callable[[int], Policy], seed: int, spec: EnvironmentSpec) -> Policy:
    """Make the base policy of an episode, reset it and return it.

    Args:
        base_for: Makes a base policy from a seed.
        seed: Seed of the episode.
        spec: Spec of the environment.

    Raises:
        SpecMismatch: The base policy needs another environment.
    """
    base = base_for(seed)
    base.environment_spec.require_interface(spec, what="The base policy acts in another environment")
    base.reset()
    return base


def _residual(spec: EnvironmentSpec, scale: float) -> EnvironmentSpec:
    action = spec.action
    half = [scale * (high - low) / 2 for low, high in zip(action.low, action.high, strict=True)]
    corrected = replace(
        action,
        names=tuple(f"{name}_correction" for name in action.names),
        low=tuple(-value for value in half),
        high=tuple(half),
    )
    base = ArraySpec(BASE_ACTION, (action.size,), low=-1, high=1, meaning="action of the base policy, before the correction")
    arrays = (*spec.observation.values(), base)
    return replace(spec, name=f"residual:{spec.name}", observation=ObservationSpec(arrays), action=corrected)
