"""MiniGrid and BabyAI: grid worlds, one at a time or batched, with a teacher who names subgoals if asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import minigrid

from robo_sims.batched.environment import Batch
from robo_sims.grids.batch import MiniGridBatch, is_batchable
from robo_sims.grids.cells import Encoding
from robo_sims.grids.simulation import MiniGridSimulation
from robo_sims.simulation import Simulation
from robo_sims.task_family import TaskFamily


def _tasks() -> list[str]:
    """Returns the newest version of each task, without MiniGrid-WFC, whose pattern pictures are missing from the package."""
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
    from robo_sims.grids.guided import GuidedSimulation, guidance  # lists of environments need no language model

    return GuidedSimulation(simulation, guidance(subgoals, teaching))


def _batch(
    task: str,
    num_envs: int,
    threads: int,
    encoding: Encoding = "codes",
    subgoals: str = "",
    teaching: Mapping[str, Any] | None = None,
) -> Batch | None:
    """Returns None for a task with rules of its own; threads would not help."""
    del threads
    batch = MiniGridBatch(task, num_envs, encoding)
    if not is_batchable(batch.source):
        batch.close()
        return None
    if not subgoals and teaching is None:
        return batch
    from robo_sims.grids.guided import GuidedBatch, guidance

    return GuidedBatch(batch, guidance(subgoals, teaching))


FAMILY = TaskFamily("minigrid", _tasks, _simulate, _batch, drawing=("render_mode",))
