"""MiniGrid and BabyAI: grid worlds, single or batched, optionally with subgoals from a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium

from robo_rl.entry_points import load
from robo_rl.errors import optional
from robo_sims.batched.environment import SimulationBatch
from robo_sims.simulation import Simulation
from robo_sims.task_family import TaskFamily

with optional("MiniGrid", "minigrid", "minigrid"):
    import minigrid

    from robo_sims.grids.batch import MiniGridBatch, is_batchable
    from robo_sims.grids.cells import Encoding
    from robo_sims.grids.simulation import MiniGridSimulation


class Guide(Protocol):
    """Plug-in that adds subgoals to grid worlds, an entry point of `robo_rl.guides`."""

    def simulation(self, simulation: MiniGridSimulation, subgoals: str, teaching: Mapping[str, Any] | None) -> Simulation:
        """Return the simulation, extended by subgoals that are part of the observation.

        Args:
            simulation: The simulation of the task.
            subgoals: Form in which subgoals are observed.
            teaching: Settings of the teacher that gives the subgoals in training; None for no teacher.
        """

    def batch(self, batch: MiniGridBatch, subgoals: str, teaching: Mapping[str, Any] | None) -> SimulationBatch:
        """Return a batch with observed subgoals; arguments as in `simulation`."""


def _tasks() -> list[str]:
    """Return the newest version of each task, without MiniGrid-WFC, whose image files are not in the package."""
    gymnasium.register_envs(minigrid)
    newest: dict[str, str] = {}
    for name, entry in gymnasium.registry.items():
        if name.startswith(("MiniGrid-", "BabyAI-")) and not name.startswith("MiniGrid-WFC-"):
            newest[entry.name] = max(name, newest.get(entry.name, name))
    return list(newest.values())


def _simulate(
    task: str, encoding: Encoding = "codes", subgoals: str = "", teaching: Mapping[str, Any] | None = None
) -> Simulation:
    simulation = MiniGridSimulation(task, encoding)
    if not subgoals and teaching is None:
        return simulation
    return _guide().simulation(simulation, subgoals, teaching)


def _batch(
    task: str,
    num_envs: int,
    threads: int,
    encoding: Encoding = "codes",
    subgoals: str = "",
    teaching: Mapping[str, Any] | None = None,
) -> SimulationBatch | None:
    """Return the batch of a task, or None if the task has rules that the batch does not know; `threads` is not used."""
    del threads
    batch = MiniGridBatch(task, num_envs, encoding)
    if not is_batchable(batch.source):
        batch.close()
        return None
    if not subgoals and teaching is None:
        return batch
    return _guide().batch(batch, subgoals, teaching)


def _guide() -> Guide:
    """Return the plug-in that gives subgoals; raises UnknownName if no installed package has it."""
    guide: Guide = load("guides", "subgoals", fix="pip install robo-rl-papers")
    return guide


FAMILY = TaskFamily("minigrid", _tasks, _simulate, _batch, drawing=("render_mode",))
"""Family `minigrid`: grid worlds with a mission in words."""
