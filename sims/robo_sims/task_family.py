"""Environment family made of simulation tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
from typing_extensions import override

from robo_rl.errors import UnknownName
from robo_rl.protocols.components import EnvironmentFamily

if TYPE_CHECKING:
    from robo_sims.batched.environment import SimulationBatch
    from robo_sims.simulation import Simulation


@dataclass(frozen=True)
class TaskFamily(EnvironmentFamily):
    """Family defined by functions that list, simulate and batch its tasks."""

    name: str
    """Part before the slash of a full name."""
    list_tasks: Callable[[], Iterable[str]]
    """() -> task names; raises MissingExtra"""
    simulate: Callable[..., Simulation]
    """(task, **arguments) -> simulation"""
    batch: Callable[..., SimulationBatch | None] | None = None
    """(task, num_envs, threads, **arguments of `simulate`) -> batch of simulations, or None if the task has none"""
    drawing: tuple[str, ...] = ("cameras", "image_size", "render_mode")
    """Arguments of SimulationEnvironment and BatchedEnvironment."""

    @override
    def names(self) -> list[str]:
        return list(self.list_tasks())

    @override
    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        drawing = self._split(name, arguments)
        from robo_sims.simulation import SimulationEnvironment

        return SimulationEnvironment(self.simulate(name, **arguments), **drawing)

    def make_vector(
        self, name: str, num_envs: int, *, threads: int | None = None, autoreset_mode: Any = "NextStep", **arguments: Any
    ) -> gymnasium.vector.VectorEnv[Any, Any, Any] | None:
        """Return a vector environment; None if the family or the task has no batched simulation."""
        if self.batch is None:
            return None
        drawing = self._split(name, arguments)
        from robo_sims.batched.environment import BatchedEnvironment
        from robo_sims.batched.thread_pool import choose_threads

        batch = self.batch(name, num_envs, choose_threads(threads, num_envs), **arguments)
        return None if batch is None else BatchedEnvironment(batch, autoreset_mode=autoreset_mode, **drawing)

    def _split(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Move the arguments of the environment out of those of the simulation; raises UnknownName."""
        tasks = self.names()
        if name not in tasks:
            raise UnknownName(f"task of {self.name}", name, tasks)
        refuse_unknown_arguments(f"{self.name}/{name}", self.simulate, arguments, also=self.drawing)
        return {key: arguments.pop(key) for key in self.drawing if key in arguments}


def refuse_unknown_arguments(
    full_name: str, build: Callable[..., Any], arguments: Iterable[str], also: Iterable[str] = ()
) -> None:
    """Raise UnknownName for an argument that `build`, whose first parameter is the task, does not take.

    also: arguments of the family itself.
    """
    allowed = [*list(inspect.signature(build).parameters)[1:], *also]
    for argument in arguments:
        if argument not in allowed:
            raise UnknownName(f"argument of {full_name}", argument, allowed)
