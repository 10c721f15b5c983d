"""Several environments that share one wrapper, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium

from robo_rl.errors import UnknownName


@dataclass(frozen=True)
class TaskFamily:
    """Implements `robo_rl.protocols.EnvironmentFamily`."""

    name: str
    """What stands before the slash of a full name."""
    list_tasks: Callable[[], Iterable[str]]
    """Returns the task names; raises MissingExtra."""
    build: Callable[..., gymnasium.Env[Any, Any]]
    """(task, **arguments) -> environment"""

    def names(self) -> list[str]:
        """Returns the task names; raises MissingExtra where the simulator is not installed."""
        return list(self.list_tasks())

    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Returns a fresh environment; raises UnknownName for a task or an argument that does not exist."""
        tasks = self.names()
        if name not in tasks:
            raise UnknownName(f"task of {self.name}", name, tasks)
        allowed = list(inspect.signature(self.build).parameters)[1:]
        for argument in arguments:
            if argument not in allowed:
                raise UnknownName(f"argument of {self.name}/{name}", argument, allowed)
        return self.build(name, **arguments)
