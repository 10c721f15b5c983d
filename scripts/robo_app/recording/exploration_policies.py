"""Policies that act worse than an expert: slow random motion without a task, and an expert whose actions are replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array


@dataclass(frozen=True)
class WanderingConfig:
    """Time scale of random motion."""

    theta: float = 0.15
    """Share of the distance to zero that an action loses in a step; of Lillicrap et al. 2016. For discrete actions the
    probability of another choice."""
    sigma: float = 0.2
    """Standard deviation of the noise per step, in [-1, 1] units; of Lillicrap et al. 2016."""
    switch: float = 0.04
    """Probability in each step of turning from wandering to the expert, or back: stretches of 25 steps on average."""


class WanderingPolicy:
    """Actions of an Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein 1930), in turn with those of an expert if there is one.

    The seed determines all random choices; the expert is reset at each of its turns.
    """

    def __init__(self, spec: EnvironmentSpec, seed: int, expert: Policy | None = None) -> None:
        self.environment_spec, self._expert, self._config = spec, expert, WanderingConfig()
        self._random = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Start an episode, with or without the expert at even odds."""
        self._has_expert = self._expert is not None and bool(self._random.random() < 0.5)
        if self._expert is not None:
            self._expert.reset()
        self._action = self._first()

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the next action; "deterministic" has no effect, since there is no most likely action."""
        if self._expert is not None and self._random.random() < self._config.switch:
            self._has_expert = not self._has_expert
            self._expert.reset()
        self._action = self._next()
        if self._expert is not None and self._has_expert:
            return self._expert.act(observation, deterministic=deterministic)
        return np.asarray(self._action, np.int64) if self._is_discrete else np.clip(self._action, -1, 1).astype(np.float32)

    @property
    def _is_discrete(self) -> bool:
        return self.environment_spec.action.is_discrete

    def _first(self) -> Array:
        action, config = self.environment_spec.action, self._config
        if self._is_discrete:
            return np.asarray(self._random.integers(action.size))
        spread = config.sigma / np.sqrt(1 - (1 - config.theta) ** 2)  # that of the process after a long time
        return np.asarray(self._random.normal(0.0, spread, action.shape))

    def _next(self) -> Array:
        config = self._config
        if self._is_discrete:
            return self._first() if self._random.random() < config.theta else self._action
        return np.asarray((1 - config.theta) * self._action + self._random.normal(0.0, config.sigma, self._action.shape))


class DisturbedPolicy:
    """Another policy, of whose actions a share is replaced by uniformly random ones; a seed determines which."""

    def __init__(self, policy: Policy, share: float, seed: int) -> None:
        """share: probability in each step of a random action."""
        self.environment_spec, self._policy, self._share = policy.environment_spec, policy, share
        self._spec = policy.environment_spec.action
        self._random = np.random.default_rng([seed, 1])

    def reset(self) -> None:
        """Begin an episode."""
        self._policy.reset()

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the policy's action, or a random one."""
        action = self._policy.act(observation, deterministic=deterministic)
        return self._spec.random(self._random) if self._random.random() < self._share else action


def share_for(mean_return: Callable[[float], float], wanted: float, steps: int = 6) -> tuple[float, float]:
    """Return the share of random actions whose mean return is nearest to `wanted`, and that return, by bisection.

    mean_return: share in [0, 1] -> mean return, which falls with the share.
    """
    low, high = 0.0, 1.0
    tried: dict[float, float] = {}
    for _ in range(steps):
        share = 0.5 * (low + high)
        tried[share] = mean_return(share)
        low, high = (share, high) if tried[share] > wanted else (low, share)
    best = min(tried, key=lambda share: abs(tried[share] - wanted))
    return best, tried[best]
