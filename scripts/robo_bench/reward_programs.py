"""Measure the sandbox of reward programs against the same program in this process, bare and with checked outputs."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from functools import partial

import numpy as np

from robo_bench.measurement import Case, Contestants, Effort, each, rate
from robo_rl.rewards.programs.geometry import quat_angle
from robo_rl.rewards.programs.output_checks import Limits, OutputChecks
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox
from robo_rl.types import Array

PROGRAM_ROWS = (256, 2048)
SIZES = {"tool_position": 3, "cube_position": 3, "goal_position": 3, "cube_orientation": 4, "goal_orientation": 4}
SIZES |= {"action": 7, "joint_velocities": 7}


def reward(batch: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Six terms over 31 numbers a row: the size of a language model's programs for an arm that picks."""
    tool, cube, goal = batch["tool_position"], batch["cube_position"], batch["goal_position"]
    apart = np.linalg.norm(tool - cube, axis=1)
    reaching = 1.0 - np.tanh(5.0 * apart)
    lifted = cube[:, 2] > 0.04
    placing = np.where(lifted, 1.0 - np.tanh(3.0 * np.linalg.norm(cube - goal, axis=1)), 0.0)
    grasping = np.where(apart < 0.03, np.clip(1.0 - batch["gripper"], 0.0, 1.0), 0.0)
    turn = quat_angle(batch["cube_orientation"], batch["goal_orientation"])
    turning = np.where(lifted, np.exp(-turn), 0.0)
    effort = -0.01 * np.sum(batch["action"] ** 2, axis=1)
    still = -0.1 * np.linalg.norm(batch["joint_velocities"], axis=1)
    total = reaching + grasping + placing + turning + effort + still
    return total, {
        "reaching": reaching,
        "grasping": grasping,
        "placing": placing,
        "turning": turning,
        "effort": effort,
        "still": still,
    }


def cases(effort: Effort) -> list[Case]:
    """Return a batch as a policy's learner asks for it, and a larger one."""
    name = "reward program in the sandbox, {} rows at once"
    return [Case(name.format(rows), "rows/s", partial(_contestants, rows)) for rows in PROGRAM_ROWS]


def _contestants(rows: int, _: Effort, stack: ExitStack) -> Contestants:
    """Return the sandbox, and this process as Python runs the text, checked and not."""
    generator = np.random.default_rng(0)
    columns: dict[str, Array] = {name: generator.normal(size=(rows, size)) for name, size in SIZES.items()}
    columns["gripper"] = generator.random(rows)
    program = RewardProgram.parse(inspect.getsource(reward))
    checks, sandbox = OutputChecks(program.terms, Limits()), stack.enter_context(Sandbox(program))

    def checked() -> None:
        total, terms = reward(columns)
        checks.accept(np.stack([total, *terms.values()]))

    return {
        "ours": rate(each(lambda: sandbox.run(columns), rows)),
        "in this process, outputs checked": rate(each(checked, rows)),
        "in this process": rate(each(lambda: reward(columns), rows)),
    }
