"""State that outlives the episodes of an environment, such as a curriculum: saved with a training, and shown in its log."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv

from robo_rl.environments.vector import metrics_of
from robo_rl.protocols.components import Stateful
from robo_rl.types import Metrics, StateDict


class LastingWrapper(gymnasium.Wrapper[Any, Any, Any, Any], Stateful):
    """Wrapper with a state that outlives episodes, such as a curriculum; all parts of a vector environment share it."""

    @property
    @abstractmethod
    def lasting_metrics(self) -> Metrics:
        """Tag -> present value, for the training log."""


def environment_metrics(environment: Any) -> Metrics:
    """Return metrics of an environment for the training log.

    They are the counts that it keeps itself, summed over a vector environment, and those of wrappers with a lasting state.
    """
    found = metrics_of(environment)
    for each in _lasting(environment):
        found = found | each.lasting_metrics
    return found


def lasting_state(environment: Any) -> StateDict:
    """Return the states of the environment's lasting wrappers (curricula and others) by class name, to save them."""
    return {type(each).__name__: each.state_dict() for each in _lasting(environment)}


def load_lasting_state(environment: Any, state: Mapping[str, Any]) -> None:
    """Restore the value of `lasting_state`; a wrapper that is missing in it keeps its initial state."""
    for each in _lasting(environment):
        if saved := state.get(type(each).__name__):
            each.load_state_dict(dict(saved))


def _lasting(environment: Any) -> Iterator[LastingWrapper]:
    """Yield the lasting wrappers around an environment, or around the first of a vector environment."""
    inner = environment.envs[0] if isinstance(environment, SyncVectorEnv) else environment
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, LastingWrapper):
            yield inner
        inner = inner.env
