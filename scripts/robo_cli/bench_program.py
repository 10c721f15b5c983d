"""What the sandbox of reward programs costs, beside the same program in this process, bare and through the same gates."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from robo_rl.benchmark import Cases, Effort, Measurement, Trial, measurement
from robo_rl.rewards.programs.gates import Gates, Limits
from robo_rl.rewards.programs.geometry import quat_angle
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox
from robo_rl.types import Array

PROGRAM_ROWS = (256, 2048)
SIZES = {"tool_position": 3, "cube_position": 3, "goal_position": 3, "cube_orientation": 4, "goal_orientation": 4}
SIZES |= {"action": 7, "joint_velocities": 7}


def reward(batch: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Six terms over 31 numbers a row: the size of what language models write for an arm that picks."""
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


def cases(effort: Effort) -> Cases:
    """Returns a batch as a policy's learner asks for it, and a larger one."""
    found = {f"reward program in the sandbox, {rows} rows at once": rows for rows in PROGRAM_ROWS}
    return {case: partial(_measure, case, rows, effort) for case, rows in found.items()}


def _measure(case: str, rows: int, effort: Effort) -> Measurement:
    """Returns rows per second in the sandbox, and in this process as Python runs the text, checked and not."""
    generator = np.random.default_rng(0)
    columns: dict[str, Array] = {name: generator.normal(size=(rows, size)) for name, size in SIZES.items()}
    columns["gripper"] = generator.random(rows)
    program = RewardProgram.parse(inspect.getsource(reward))
    gates = Gates(program.terms, Limits())

    def checked() -> None:
        total, terms = reward(columns)
        gates.accept(np.stack([total, *terms.values()]))

    with Sandbox(program) as sandbox:
        trials: dict[str, Trial] = {
            "ours": partial(_rate, lambda: sandbox.run(columns), rows),
            "in this process, outputs checked": partial(_rate, checked, rows),
            "in this process": partial(_rate, lambda: reward(columns), rows),
        }
        return measurement("reward", case, "rows/s", trials, effort)


def _rate(work: Callable[[], object], rows: int, seconds: float) -> float:
    """Returns rows per second."""
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds or not done:
        work()
        done += rows
    return done / passed
