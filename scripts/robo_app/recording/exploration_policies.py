"""Policies that are worse than an expert: slow random motion, and an expert with some actions replaced by random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array


@dataclass(frozen=True)
class WanderingConfig:
    """Parameters of a WanderingPolicy."""

    theta: float = 0.15
    """Share by which an action returns to 0 in each step, as in Lillicrap et al. 2016. For discrete actions the probability
    that a new choice is drawn."""
    sigma: float = 0.2
    """Standard deviation of the noise that is added in each step, for actions in [-1, 1], as in Lillicrap et al. 2016."""
    switch: float = 0.04
    """Probability in each step of changing between random motion and the expert: every 25 steps on average."""


class WanderingPolicy:
    """Policy with actions of an Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein 1930).

    If there is an expert, stretches of its actions alternate with the random ones; it is reset at the beginning of each. The
    seed determines all random choices.
    """

    def __init__(self, spec: EnvironmentSpec, seed: int, expert: Policy | None = None) -> None:
        self.environment_spec, self._expert, self._config = spec, expert, WanderingConfig()
        self._random = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Begin an episode, with random motion or, with probability 0.5, with the expert."""
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
    """Another policy with a share of its actions replaced by uniformly random ones; the seed determines which."""

    def __init__(self, policy: Policy, share: float, seed: int) -> None:
        """Wrap a policy; `share` is the probability of a random action in each step."""
        self.environment_spec, self._policy, self._share = policy.environment_spec, policy, share
        self._spec = policy.environment_spec.action
        self._random = np.random.default_rng([seed, 1])

    def reset(self) -> None:
        """Begin an episode of the wrapped policy."""
        self._policy.reset()

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the policy's action, or a random one."""
        action = self._policy.act(observation, deterministic=deterministic)
        return self._spec.random(self._random) if self._random.random() < self._share else action


def share_for(mean_return: Callable[[float], float], wanted: float, steps: int = 6) -> tuple[float, float]:
    """Find by bisection the share of random actions with which a policy has a mean return near a wanted value.

    Args:
        mean_return: Function from a share in [0, 1] to the mean return, which falls with the share.
        wanted: Wanted mean return.
        steps: Number of shares to try.

    Returns:
        The best share that was tried, and its mean return.
    """
    low, high = 0.0, 1.0
    tried: dict[float, float] = {}
    for _ in range(steps):
        share = 0.5 * (low + high)
        tried[share] = mean_return(share)
        low, high = (share, high) if tried[share] > wanted else (low, share)
    best = min(tried, key=lambda share: abs(tried[share] - wanted))
    return best, tried[best]
