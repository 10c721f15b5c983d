"""MiniGrid and BabyAI: grid worlds, single or batched, optionally with subgoals from a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from robo_rl.errors import optional
from robo_sims.batched.environment import SimulationBatch
from robo_sims.simulation import Simulation
from robo_sims.task_family import TaskFamily

with optional("MiniGrid", "minigrid", "minigrid"):
    import minigrid

    from robo_sims.grids.batch import MiniGridBatch, is_batchable
    from robo_sims.grids.cells import Encoding
    from robo_sims.grids.simulation import MiniGridSimulation


def _tasks() -> list[str]:
    """Return the newest version of each task, without MiniGrid-WFC, whose pattern pictures are not in the package."""
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
    from robo_sims.grids.subgoals.environments import GuidedSimulation, guidance  # slow import, not needed to list environments

    return GuidedSimulation(simulation, guidance(subgoals, teaching))


def _batch(
    task: str,
    num_envs: int,
    threads: int,
    encoding: Encoding = "codes",
    subgoals: str = "",
    teaching: Mapping[str, Any] | None = None,
) -> SimulationBatch | None:
    """Return None for a task with additional rules; `threads` is unused, the rules run in numpy."""
    del threads
    batch = MiniGridBatch(task, num_envs, encoding)
    if not is_batchable(batch.source):
        batch.close()
        return None
    if not subgoals and teaching is None:
        return batch
    from robo_sims.grids.subgoals.environments import GuidedBatch, guidance

    return GuidedBatch(batch, guidance(subgoals, teaching))


FAMILY = TaskFamily("minigrid", _tasks, _simulate, _batch, drawing=("render_mode",))
"""Grids with a mission in words."""
