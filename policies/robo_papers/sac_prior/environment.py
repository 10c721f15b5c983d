"""An environment that also says how a prior policy would act, for learners that stay near it (page.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import Array

PRIOR_ACTION = "prior_action"
LEAST_STD = 0.05
"""Smallest standard deviation of a prior: a narrower one has densities without bound."""


class PriorEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds the action of a prior policy to the observation, for learners; no policy reads it."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        prior_for: Callable[[int], Policy],
        *,
        std: float = 0.3,
        reward_weight: float = 0.0,
    ) -> None:
        """Raise InvalidSetting for discrete actions and numbers out of range.

        prior_for: returns the prior for the seed of an episode. reward_weight: of log pi_0(a|s), added to the reward: with an
        entropy bonus of the same weight the objective is the reward less that weight times KL(pi || pi_0). std: deviation of
        pi_0 in that term, in [-1, 1] units.
        """
        super().__init__(environment)
        self._inner, self._prior_for, self._std, self._weight = specification(environment), prior_for, std, reward_weight
        if self._inner.action.is_discrete or not std >= LEAST_STD or not 0.0 <= reward_weight < np.inf:
            got = f"actions of the mode {self._inner.action.mode!r}, std {std}, reward_weight {reward_weight}"
            allowed = f"continuous actions, std of {LEAST_STD} or more, a weight of 0 or more"
            raise InvalidSetting("There is no such prior.", got=got, allowed=allowed)
        self.environment_spec = _with_prior(self._inner)
        self.observation_space = self.environment_spec.observation.space
        self._prior: Policy | None = None
        self._action: Array = np.zeros(0, np.float32)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        seed = int(self.unwrapped.np_random.integers(1 << 31)) if seed is None else seed
        observation, info = super().reset(seed=seed, options=options)
        self._prior = self._prior_for(seed)
        self._prior.environment_spec.require_interface(self._inner, what="The prior acts in another environment")
        self._prior.reset()
        return self._with_action(observation), info

    @override
    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        before = self._action
        observation, reward, terminated, truncated, info = super().step(action)
        if self._weight:
            executed = torch.as_tensor(np.asarray(info.get("executed_action", action), np.float64))
            term = self._weight * float(log_prior(executed, torch.as_tensor(before.astype(np.float64)), self._std))
            reward, info = float(reward) + term, {**info, "reward_terms": {**info.get("reward_terms", {}), "prior": term}}
        return self._with_action(observation), reward, terminated, truncated, info

    def _with_action(self, observation: Observation) -> Observation:
        assert self._prior is not None
        replan(self._prior)  # its actions are never executed
        self._action = np.clip(self._prior.act(observation, deterministic=True), -1.0, 1.0).astype(np.float32)
        return {**observation, PRIOR_ACTION: self._action}


def log_prior(actions: Tensor, means: Tensor, std: float) -> Tensor:
    """Return the log densities (B,) of actions (B, A) under normal distributions that are cut to [-1, 1].

    means: (B, A). std: standard deviation of all elements.
    """
    inside = torch.special.ndtr((1.0 - means) / std) - torch.special.ndtr((-1.0 - means) / std)
    scores = (actions - means) / std
    found: Tensor = (-0.5 * scores.square() - 0.5 * math.log(2 * math.pi) - math.log(std) - inside.log()).sum(-1)
    return found


def _with_prior(spec: EnvironmentSpec) -> EnvironmentSpec:
    prior = ArraySpec(
        PRIOR_ACTION, (spec.action.size,), low=-1, high=1, role="privileged", meaning="action of the prior policy"
    )
    return replace(spec, name=f"prior:{spec.name}", observation=ObservationSpec((*spec.observation.values(), prior)))
