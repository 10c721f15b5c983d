"""Trainings as work that is measured: without logs, that many steps at a time."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import override

from robo_bench.measurement import Work
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.protocols.components import Training, TrainingObserver
from robo_rl.types import Metrics


class Silent:
    """Observer of a training that does nothing."""

    def on_episode(self, step: int, **outcome: Any) -> None:
        """Ignore the end of an episode."""

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Ignore metrics."""

    def on_step(self, step: int, training: Training) -> None:
        """Ignore a step."""


class Successes(Silent):
    """Observer that keeps the success of each episode."""

    def __init__(self) -> None:
        self.found = list[bool]()

    @override
    def on_episode(self, step: int, **outcome: Any) -> None:
        self.found.append(bool(outcome["success"]))


class Environments:
    """Factory of an environment from its name, or of many in one object with autoreset in the same step."""

    def __init__(self, name: str, *, threads: int | None = None, **arguments: Any) -> None:
        self._name, self._threads, self._arguments = name, threads, arguments

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make and return a new environment."""
        return make_environment(self._name, **self._arguments)

    def make_vector(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """Make and return a vector environment with `num_envs` copies."""
        mode = AutoresetMode.SAME_STEP
        return make_vector_environment(self._name, num_envs, threads=self._threads, autoreset_mode=mode, **self._arguments)


class Extendable(Protocol):
    """Protocol of a training whose last step `steps` can be moved, so that it continues."""

    steps: int

    def run(self, observer: TrainingObserver) -> None:
        """Train to the last step."""


def advancing(training: Extendable, steps: int) -> Work:
    """Return work that continues a training for `steps` more environment steps; a call returns this number."""

    def advance() -> int:
        training.steps += steps
        training.run(Silent())
        return steps

    return advance
