"""The arm's tasks by name. Adding one is one file here and one line below."""

from robo_sims.arm.tasks.pick import Pick
from robo_sims.arm.tasks.task import Task

TASKS: dict[str, type[Task]] = {"ArmPick-v0": Pick}
