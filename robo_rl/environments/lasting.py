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
    """Wrapper whose state outlives the episodes; environments side by side share one state."""

    @property
    @abstractmethod
    def lasting_metrics(self) -> Metrics:
        """Tag -> present figure of the lasting state, for the training log."""


def environment_metrics(environment: Any) -> Metrics:
    """Return an environment's counts, summed over those side by side, and the figures of its lasting wrappers."""
    found = metrics_of(environment)
    for each in _lasting(environment):
        found = found | each.lasting_metrics
    return found


def lasting_state(environment: Any) -> StateDict:
    """Return class name -> state, for each lasting wrapper; empty if there is none."""
    return {type(each).__name__: each.state_dict() for each in _lasting(environment)}


def load_lasting_state(environment: Any, state: Mapping[str, Any]) -> None:
    """Restore the state that `lasting_state` returned; a wrapper that is not in it starts afresh."""
    for each in _lasting(environment):
        if saved := state.get(type(each).__name__):
            each.load_state_dict(dict(saved))


def _lasting(environment: Any) -> Iterator[LastingWrapper]:
    """Yield the lasting wrappers around an environment, or around the first of several."""
    inner = environment.envs[0] if isinstance(environment, SyncVectorEnv) else environment
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, LastingWrapper):
            yield inner
        inner = inner.env
