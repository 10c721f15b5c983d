"""Environment family whose tasks are simulations."""

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
    """Family of environments, given by functions that list its tasks and make their simulations."""

    name: str
    """Name of the family: the part before the slash in an environment's name."""
    list_tasks: Callable[[], Iterable[str]]
    """Function without arguments -> names of the tasks; raises MissingExtra if a package is not installed."""
    simulate: Callable[..., Simulation]
    """Function (task, **arguments) -> simulation."""
    batch: Callable[..., SimulationBatch | None] | None = None
    """Function (task, num_envs, threads, **arguments of `simulate`) -> batch, or None if the task cannot be batched."""
    drawing: tuple[str, ...] = ("cameras", "image_size", "render_mode")
    """Names of keyword arguments that configure pictures: they go to SimulationEnvironment or BatchedEnvironment, not to
    `simulate`."""

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
        """Return a vector environment with a batched simulation, or None if the family or the task has none."""
        if self.batch is None:
            return None
        drawing = self._split(name, arguments)
        from robo_sims.batched.environment import BatchedEnvironment
        from robo_sims.batched.thread_pool import choose_threads

        batch = self.batch(name, num_envs, choose_threads(threads, num_envs), **arguments)
        return None if batch is None else BatchedEnvironment(batch, autoreset_mode=autoreset_mode, **drawing)

    def _split(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Remove the arguments in `drawing` from `arguments` and return them.

        Raises UnknownName for an unknown task or argument.
        """
        tasks = self.names()
        if name not in tasks:
            raise UnknownName(f"task of {self.name}", name, tasks)
        refuse_unknown_arguments(f"{self.name}/{name}", self.simulate, arguments, also=self.drawing)
        return {key: arguments.pop(key) for key in self.drawing if key in arguments}


def refuse_unknown_arguments(
    full_name: str, build: Callable[..., Any], arguments: Iterable[str], also: Iterable[str] = ()
) -> None:
    """Raise UnknownName for an argument that a family does not know.

    Args:
        full_name: Name of the environment, for the error.
        build: Function that takes the task and the arguments.
        arguments: Names of the given arguments.
        also: Further allowed names.
    """
    allowed = [*list(inspect.signature(build).parameters)[1:], *also]
    for argument in arguments:
        if argument not in allowed:
            raise UnknownName(f"argument of {full_name}", argument, allowed)
