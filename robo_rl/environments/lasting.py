"""What an environment keeps over its episodes, such as a curriculum: saved with a training, and shown in its log."""

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
    """Wrapper with a state that lasts over episodes; environments side by side share it."""

    @property
    @abstractmethod
    def lasting_metrics(self) -> Metrics:
        """Figures for the log of a training."""


def environment_metrics(environment: Any) -> Metrics:
    """Return the counts of environments, summed over single ones, and the figures of their lasting wrappers."""
    found = metrics_of(environment)
    for each in _lasting(environment):
        found = found | each.lasting_metrics
    return found


def lasting_state(environment: Any) -> StateDict:
    """Return the state of each lasting wrapper by its class; empty without any."""
    return {type(each).__name__: each.state_dict() for each in _lasting(environment)}


def load_lasting_state(environment: Any, state: Mapping[str, Any]) -> None:
    """Restore it; a wrapper that was not there then begins afresh."""
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
