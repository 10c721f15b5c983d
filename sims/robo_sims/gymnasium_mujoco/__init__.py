"""Gymnasium's MuJoCo tasks, version 5, single or batched."""

from robo_sims.gymnasium_mujoco.batch import GymnasiumBatch
from robo_sims.gymnasium_mujoco.simulation import LAYOUTS, GymnasiumSimulation
from robo_sims.task_family import TaskFamily

FAMILY = TaskFamily("gymnasium", lambda: LAYOUTS, GymnasiumSimulation, GymnasiumBatch)
"""Family `gymnasium`: Gymnasium's MuJoCo tasks, version 5."""
