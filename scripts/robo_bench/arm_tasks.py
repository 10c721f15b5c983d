"""Benchmark of the arm tasks: `python -m robo_bench.arm_tasks [episodes]` prints experts' success, speed and camera rates.

Speed is that of `step` along expert episodes, contacts included: processor time without cameras, which is independent of
the load of the machine, and wall time with cameras, which several threads draw.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

import numpy as np

from robo_sims.arm.control import CLOSED, CONTROLS
from robo_sims.arm.environment import CAMERAS, ArmEnv
from robo_sims.arm.tasks import TASKS


@dataclass(frozen=True)
class Measurement:
    """Results over expert episodes."""

    successes: int
    mean_steps: float
    steps_per_second: float
    """control steps per second of processor time in `step`"""
    reset_milliseconds: float


def measure(environment: ArmEnv, *, seeds: range, noise: float = 0.0) -> Measurement:
    """Run one expert episode per seed."""
    successes, steps, stepping, resetting = 0, 0, 0.0, 0.0
    for seed in seeds:
        start = time.process_time()
        observation, info = environment.reset(seed=seed)
        resetting += time.process_time() - start
        policy = environment.scripted_policy(seed, noise)
        done = False
        while not done:
            action = policy.act(observation)
            start = time.process_time()
            observation, _, terminated, truncated, info = environment.step(action)
            stepping += time.process_time() - start
            steps += 1
            done = terminated or truncated
        successes += info["success"]
    return Measurement(successes, steps / len(seeds), steps / stepping, 1000 * resetting / len(seeds))


def main(episodes: int) -> None:
    """Print one line per task and control mode, then the rates with cameras."""
    print(f"{episodes} episodes each, {os.cpu_count()} cores, one used")
    print(f"{'task':18}{'control':28}{'success':>10}{'mean steps':>12}{'steps/s':>9}{'reset ms':>10}")
    for task in TASKS:
        for control in (mode for mode in CONTROLS if not (TASKS[task].grasps and mode == CLOSED)):
            got = measure(ArmEnv(task, control=control), seeds=range(episodes))
            success = f"{got.successes}/{episodes}"
            print(
                f"{task:18}{control:28}{success:>10}{got.mean_steps:12.1f}"
                f"{got.steps_per_second:9.0f}{got.reset_milliseconds:10.2f}"
            )
    for cameras in (CAMERAS[:1], CAMERAS):
        print(f"ArmPick-v0 with {' and '.join(cameras)} at 84x84: {_rate_with(cameras):.0f} control steps/s")


def _rate_with(cameras: tuple[str, ...]) -> float:
    environment = ArmEnv("ArmPick-v0", cameras=cameras)
    environment.reset(seed=0)
    still = np.zeros(environment.action_space.shape or (), np.float32)
    start, steps = time.perf_counter(), 200
    for _ in range(steps):
        environment.step(still)
    rate = steps / (time.perf_counter() - start)
    environment.close()
    return rate


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
