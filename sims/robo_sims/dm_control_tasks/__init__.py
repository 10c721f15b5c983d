"""The dm_control suite, single or batched, and dm_control.manipulation."""

from typing import Any

from robo_sims.dm_control_tasks.batch import DMControlBatch
from robo_sims.dm_control_tasks.simulation import MANIPULATION, DMControlSimulation, task_names
from robo_sims.task_family import TaskFamily


def _batch(task: str, num_envs: int, threads: int, **arguments: Any) -> DMControlBatch | None:
    """Return the batch of a suite task; None for manipulation, which compiles a new model for every episode."""
    return None if task.startswith(MANIPULATION) else DMControlBatch(task, num_envs, threads, **arguments)


FAMILY = TaskFamily("dm_control", task_names, DMControlSimulation, _batch)
"""Family `dm_control`: DeepMind's control suite and manipulation tasks."""
