"""Arm tasks by name. A new task is one file here, one line below, and its name in robo_sims.arm.family."""

from robo_sims.arm.tasks.peg_insert import PegInsert
from robo_sims.arm.tasks.pick import Pick
from robo_sims.arm.tasks.push import Push
from robo_sims.arm.tasks.reach import Reach
from robo_sims.arm.tasks.task import ArmTask

TASKS: dict[str, type[ArmTask]] = {"ArmReach-v0": Reach, "ArmPush-v0": Push, "ArmPick-v0": Pick, "ArmPegInsert-v0": PegInsert}
