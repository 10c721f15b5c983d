"""Environments of others that have no spec: it is derived from the spaces, and a warning says that units are unknown."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit
from typing_extensions import override

from robo_rl.environments.spaces import coding_of, entries_of, observation_spec
from robo_rl.errors import EnvironmentFailed
from robo_rl.spec.environment import EnvironmentSpec, Observation

TIME_LIMIT = "time_limit"
_WARNED: set[str] = set()
"""Names for which this process has already warned."""


class UnitsUnknown(UserWarning):
    """Warning that an environment does not say what its numbers mean."""


class ForeignEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that derives a spec from the spaces: observations become a flat dict of arrays, actions [-1, 1]^A or choices."""

    def __init__(self, environment: gymnasium.Env[Any, Any], name: str) -> None:
        """Wrap an environment; raises InvalidSetting for spaces from which no spec can be derived."""
        super().__init__(environment)
        self._name, self._steps = name, 0
        self._entries = entries_of(environment.observation_space, name)
        self.coding = coding_of(environment.action_space, name)
        self.own_observation: Any = None
        """Newest observation as the environment itself returned it, for policies of its own spaces."""
        observed, limit = observation_spec(self._entries), _time_limit(environment)
        self.environment_spec = EnvironmentSpec(name, observed, self.coding.spec, max_steps=limit)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        observation, info = _parts(self._name, "reset", self.env.reset(seed=seed, options=options), 2)
        self._steps = 0
        return self._read(observation), _told(info)

    @override
    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Take a step; a step that is both terminated and at the time limit counts as terminated only."""
        taken = _parts(self._name, "step", self.env.step(self.coding.decode(action)), 5)
        observation, reward, terminated, truncated, info = taken
        self._steps += 1
        info = _told(info)
        if terminated or truncated:
            info.setdefault("stop_reason", self._reason(bool(terminated), info))
        return self._read(observation), reward, bool(terminated), bool(truncated and not terminated), info

    def _reason(self, terminated: bool, info: dict[str, Any]) -> str:
        if terminated:
            return "goal" if info.get("success") else "terminated"
        limit = self.environment_spec.max_steps
        return TIME_LIMIT if limit is None or self._steps >= limit else "truncated"

    def _read(self, observation: Any) -> Observation:
        self.own_observation = observation
        return {entry.array.name: entry.read(observation, self._name) for entry in self._entries}


def with_spec(environment: gymnasium.Env[Any, Any], name: str, *, better: str = "") -> gymnasium.Env[Any, Any]:
    """Return the environment unchanged if it has a spec; else wrap it with a derived spec, and warn.

    better: name of the same environment with units, if there is one, for the warning.
    """
    if environment.has_wrapper_attr("environment_spec"):
        return environment
    found = ForeignEnv(environment, name)
    remarks = [
        f"{name} says nothing about units and frames; its spec is derived from its spaces "
        "(docs/simulators/own-environments.md)."
    ]
    if better:
        remarks.append(f"{better} is the same task with units.")
    if not found.environment_spec.max_steps:
        remarks.append("It names no time limit: if episodes may go on for ever, add the wrapper {name: time_limit, steps: N}.")
    if name not in _WARNED:
        _WARNED.add(name)
        warnings.warn(" ".join(remarks), UnitsUnknown, stacklevel=2)
    return found


def _time_limit(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the limit [steps] of Gymnasium's wrapper TimeLimit around an environment, or None."""
    while isinstance(environment, gymnasium.Wrapper):
        if isinstance(environment, TimeLimit):
            return environment._max_episode_steps
        environment = environment.env
    return None


def _parts(name: str, what: str, found: Any, count: int) -> Any:
    """Return the value of reset or step.

    Raises EnvironmentFailed if it is no tuple of `count` parts, as in the older package gym.
    """
    if isinstance(found, tuple) and len(found) == count:
        return found
    raise EnvironmentFailed(
        f"{name} returned no {what}.",
        got=f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__,
        allowed="(observation, info)" if count == 2 else "(observation, reward, terminated, truncated, info)",
        fix=f"look at {what}() of {name}: one of the package gym, before Gymnasium, has to be rewritten for Gymnasium",
    )


def _told(info: Any) -> dict[str, Any]:
    """Return `info` with `is_success`, the key of Stable-Baselines3 and Gymnasium-Robotics, also under the key `success`."""
    found = dict(info)
    if "is_success" in found:
        found.setdefault("success", bool(found["is_success"]))
    return found
