"""Measures steps of the driving environment, for `robo-rl bench drive`: a tick of a stand-in and all that is observed.

The actions are a scripted driver's, chosen before: its own time does not count.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from robo_bench.measurement import Cases, Effort, Measurement, measurement
from robo_sims.carla.family import FAMILY

LENGTH = 400.0
"""[m] of the route that is driven again and again."""


@dataclass(frozen=True)
class Steps:
    """One case."""

    task: str
    traffic: int = 0
    birdseye: int = 96


CASES = {
    "environment Ring-v0, vectors alone": Steps("Ring-v0", birdseye=0),
    "environment Ring-v0, 96x96 bird's-eye view": Steps("Ring-v0"),
    "environment Town-v0, 20 cars, 96x96 bird's-eye view": Steps("Town-v0", 20),
}


def cases(effort: Effort) -> Cases:
    """Returns the cases."""
    found: Cases = {}
    for name, steps in CASES.items():
        found[name] = partial(_measure, name, steps, effort)
        busy = f"{name}: processor time"
        found[busy] = partial(_measure, busy, steps, effort, busy=True)
    return found


def _measure(name: str, steps: Steps, effort: Effort, *, busy: bool = False) -> Measurement:
    environment = FAMILY.make(steps.task, traffic=steps.traffic, birdseye=steps.birdseye, route_length=LENGTH)
    with closing(environment):
        course = Course(environment)
        trial = course.busy if busy else course.trial
        return measurement("drive", name, "us" if busy else "steps/s", {"ours": trial}, effort)


class Course:
    """One episode that is driven again and again."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        policy = environment.scripted_policy(0)
        observation, _ = environment.reset(seed=0)
        self.actions: list[np.ndarray[Any, Any]] = []
        is_over = False
        while not is_over:
            self.actions.append(policy.act(observation))
            observation, _, terminated, truncated, _ = environment.step(self.actions[-1])
            is_over = terminated or truncated

    def driven(self, seconds: float) -> tuple[int, float, float]:
        """Returns how many steps were taken, in which time [s] and processor time [s] of both processes, without resets."""
        count, taken, used = 0, 0.0, 0.0
        while taken < seconds:
            self.environment.reset(seed=0)
            started, busy = time.perf_counter(), self._used()
            for action in self.actions:
                self.environment.step(action)
            count += len(self.actions)
            taken += time.perf_counter() - started
            used += self._used() - busy
        return count, taken, used

    def _used(self) -> float:
        return time.process_time() + float(self.environment.link.processor_seconds())

    def trial(self, seconds: float) -> float:
        """Returns steps per second."""
        count, taken, _ = self.driven(seconds)
        return count / taken

    def busy(self, seconds: float) -> float:
        """Returns the processor time of a step [us]: other load on the machine hardly counts."""
        count, _, used = self.driven(seconds)
        return 1e6 * used / count
