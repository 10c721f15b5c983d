"""Evaluation of foreign policies: models of Stable-Baselines3, objects with `act` or `predict`, plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from robo_rl.entry_points import refused_if_it_fails
from robo_rl.environments.foreign import ForeignEnv
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import Array

Decide = Callable[[Any, bool], Any]
"""Function (observation, deterministic) -> action."""
EnvironmentLike = str | gymnasium.Env[Any, Any] | Callable[..., gymnasium.Env[Any, Any]]
"""An environment, its name, its class, or a function that returns a new environment."""
KINDS = "a policy of a run, a model of Stable-Baselines3, an object with act(observation) or predict, or a function"


class OthersPolicy:
    """Policy of another library or a function, adapted to the interface Policy.

    It gets the observations that its environment returns, and returns the actions that the environment takes.
    """

    def __init__(self, source: Any, spec: EnvironmentSpec, own: ForeignEnv | None) -> None:
        """Adapt a policy; raises InvalidSetting for an object that is none.

        Args:
            source: Foreign policy.
            spec: Spec of the environment.
            own: Environment with a derived spec, whose original observations the policy reads; None if it reads those of
                `spec`.
        """
        self.environment_spec = spec
        self._own, self._name = own, type(source).__name__
        self._forget = reset if callable(reset := getattr(source, "reset", None)) else None
        self._state: Any = None
        self._is_first = True
        self._decide = self._decider(source)

    def reset(self) -> None:
        """Prepare for a new episode."""
        self._state, self._is_first = None, True
        if self._forget is not None:
            self._forget()

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the policy's action; raises InvalidSetting, with the line of code, if the policy fails."""
        seen = dict(observation) if self._own is None else self._own.own_observation
        fix = "it sees what the environment returns: give the environment in the wrappers in which the policy was trained"
        with refused_if_it_fails(f"The policy, a {self._name}, failed.", allowed="an action for each observation", fix=fix):
            action = self._decide(seen, deterministic)
        self._is_first = False
        if self._own is not None:
            return self._own.coding.encode(action)
        return np.asarray(action, self.environment_spec.action.dtype)

    def _decider(self, source: Any) -> Decide:
        if not isinstance(source, type):
            if callable(predict := getattr(source, "predict", None)):
                return self._predicting(predict)
            if callable(act := getattr(source, "act", source)):
                return _calling(act)
        fix = "give an instance, not its class" if isinstance(source, type) else None
        raise InvalidSetting("This is no policy.", got=repr(source)[:200], allowed=KINDS, fix=fix)

    def _predicting(self, predict: Callable[..., Any]) -> Decide:
        """Return a function that calls `predict`, and keeps its state if it returns one, as Stable-Baselines3's does."""
        named = _parameters(predict)

        def decide(observation: Any, deterministic: bool) -> Any:
            more = {"state": self._state, "episode_start": np.array([self._is_first]), "deterministic": deterministic}
            found = predict(observation, **{name: value for name, value in more.items() if name in named})
            if not isinstance(found, tuple):
                return found
            action, self._state = found
            return action

        return decide


def as_policy(source: Any, environment: gymnasium.Env[Any, Any], given: object) -> Policy:
    """Return a policy for an environment; a policy that has a spec is returned unchanged.

    Args:
        source: The policy.
        environment: Environment that `with_derived_spec` returned.
        given: Environment, name or class that was passed to `with_derived_spec`.
    """
    if isinstance(source, Policy):
        return source
    own = environment if isinstance(environment, ForeignEnv) else None
    if own is given and own is not None and getattr(source, "observation_space", None) != own.env.observation_space:
        own = None  # the caller has the environment with the spec in his hands, and his policy reads what that returns
    return OthersPolicy(source, specification(environment), own)


def with_derived_spec(environment: EnvironmentLike) -> gymnasium.Env[Any, Any]:
    """Return an environment whose spaces agree with its spec; if it has no such spec, one is derived from the spaces."""
    if not isinstance(environment, gymnasium.Env):
        return make_environment(environment)
    if environment.has_wrapper_attr("environment_spec"):
        spec = specification(environment)
        if environment.observation_space == spec.observation.space and environment.action_space == spec.action.space:
            return environment
    name = environment.spec.id if environment.spec is not None else type(environment.unwrapped).__name__
    return ForeignEnv(environment, name)


def _calling(act: Callable[..., Any]) -> Decide:
    if "deterministic" in _parameters(act):
        return lambda observation, deterministic: act(observation, deterministic=deterministic)
    return lambda observation, deterministic: act(observation)


def _parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return {}
