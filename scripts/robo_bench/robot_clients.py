"""Companion processes of a robot benchmark: `python -m robo_bench.robot_clients learner` or `stream URL`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from typing_extensions import override

from robo_bench.trainings import Silent
from robo_real.clock import ControlLoop
from robo_real.remote_robot import RemoteRobot
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import Training
from robo_rl.training.off_policy import online_training

NICE = 10
"""Niceness of the learner: a robot comes first."""


class Announcing(Silent):
    """Observer that prints a line when the learner has learned for a while."""

    @override
    def on_step(self, step: int, training: Training) -> None:
        if step == 600:
            print("learning", flush=True)


def learner() -> None:
    """Learn without end, at a low priority."""
    os.nice(NICE)
    environment: Any = make_environment("robot/Fake-v0")
    config = load("learners", "sac")()
    built, sampling = config.build(environment.environment_spec, 0), replace(config.sampling, learning_starts=500)
    online_training(environment, built, sampling, steps=10**9, seed=0, demonstrations=()).run(Announcing())


def stream(url: str) -> None:
    """Send commands to a robot's server, one after the other, until the process is stopped."""
    robot = RemoteRobot(url, owner="bench")
    robot.connect()
    robot.arm()
    loop = ControlLoop(robot.clock, 0.05)
    while True:
        robot.observe()
        robot.apply([0, 0, 0, 0, 1])
        if len(loop.lateness) == 10:
            print("under way", flush=True)
        loop.wait()


if __name__ == "__main__":
    learner() if sys.argv[1] == "learner" else stream(sys.argv[2])
