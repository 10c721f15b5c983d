"""Several environments that share one wrapper, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium
from typing_extensions import override

from robo_rl.errors import UnknownName
from robo_rl.protocols import EnvironmentFamily


@dataclass(frozen=True)
class TaskFamily(EnvironmentFamily):
    """Family whose tasks are listed and built by functions."""

    name: str
    """What stands before the slash of a full name."""
    list_tasks: Callable[[], Iterable[str]]
    """Returns the task names; raises MissingExtra."""
    build: Callable[..., gymnasium.Env[Any, Any]]
    """(task, **arguments) -> environment"""
    build_batched: Callable[..., gymnasium.vector.VectorEnv[Any, Any, Any]] | None = None
    """(task, num_envs, threads, autoreset_mode, **arguments of `build`) -> batched environment, where the family has one"""

    @override
    def names(self) -> list[str]:
        return list(self.list_tasks())

    @override
    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        tasks = self.names()
        if name not in tasks:
            raise UnknownName(f"task of {self.name}", name, tasks)
        refuse_unknown_arguments(f"{self.name}/{name}", self.build, arguments)
        return self.build(name, **arguments)

    def make_vector(
        self, name: str, num_envs: int, *, threads: int | None = None, autoreset_mode: Any = "NextStep", **arguments: Any
    ) -> gymnasium.vector.VectorEnv[Any, Any, Any] | None:
        """Returns `num_envs` environments in one; None where the family has no batched simulation."""
        if self.build_batched is None:
            return None
        tasks = self.names()
        if name not in tasks:
            raise UnknownName(f"task of {self.name}", name, tasks)
        refuse_unknown_arguments(f"{self.name}/{name}", self.build, arguments)
        return self.build_batched(name, num_envs, threads=threads, autoreset_mode=autoreset_mode, **arguments)


def refuse_unknown_arguments(
    full_name: str, build: Callable[..., Any], arguments: Iterable[str], also: Iterable[str] = ()
) -> None:
    """Raises UnknownName for an argument that `build`, whose first parameter is the task, does not take.

    also: arguments that the family itself takes.
    """
    allowed = [*list(inspect.signature(build).parameters)[1:], *also]
    for argument in arguments:
        if argument not in allowed:
            raise UnknownName(f"argument of {full_name}", argument, allowed)
