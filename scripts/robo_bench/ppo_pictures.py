"""Measure the processor time of PPO's environment steps with a picture and without.

A picture of 96 x 96 x 6, the size of the bird's-eye view of `carla/`, and 60 numbers, of an environment that costs next to
nothing: acting and learning are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from robo_bench.measurement import Cases, Effort, Measurement, Trial, measurement
from robo_bench.ppo import Nobody
from robo_policies.learners.ppo import PPOConfig
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.threads import use_threads

CASE = "ppo with a picture 96x96x6, rollouts of 512, batch 128, 4 passes: processor time of a step"
CONFIG = PPOConfig(
    num_envs=4, steps_per_env=128, batch_size=128, epochs=4, convolutions=(8, 16, 32, 32), normalize_rewards=False
)


def cases(effort: Effort) -> Cases:
    """Returns the one case; it sets PyTorch's threads."""
    return {CASE: lambda: measure(effort)}


def measure(effort: Effort, config: PPOConfig = CONFIG) -> Measurement:
    """Measures the case."""
    use_threads(effort.threads or 1)
    blind = replace(config, convolutions=())
    with ExitStack() as cleanup:
        contestants = {
            "ours": _used(_ours(config, cleanup), config.rollout_size),
            "vectors alone": _used(_ours(blind, cleanup), config.rollout_size),
        }
        return measurement("learner", CASE, "us", contestants, effort, bounds=["vectors alone"])


class Pictures(gymnasium.Env[Any, Any]):
    """Shows one of a few prepared pictures, and numbers; nothing that is done matters."""

    environment_spec = EnvironmentSpec(
        "bench/Pictures",
        ObservationSpec((ArraySpec("state", (60,)), ArraySpec("birdseye", (96, 96, 6), "uint8", 0, 255, role="image"))),
        ActionSpec(("steer", "longitudinal"), (-1.0, -1.0), (1.0, 1.0), ("1", "1"), "drive", 0.1),
    )

    def __init__(self) -> None:
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        random = np.random.default_rng(0)
        self._pictures = random.integers(0, 2, (16, 96, 96, 6), np.uint8) * np.uint8(255)
        self._states = random.standard_normal((16, 60), np.float32)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Shows the next picture."""
        self._step += 1
        return self._observation(), float(self._step % 7), False, self._step % 200 == 0, {}

    def _observation(self) -> dict[str, Any]:
        return {"state": self._states[self._step % 16], "birdseye": self._pictures[self._step % 16]}


def _used(advance: Callable[[], object], steps: int) -> Trial:
    """Returns a trial that advances for so many seconds, once at least, and returns the processor time of a step [us]."""

    def trial(seconds: float) -> float:
        started, busy, taken = time.perf_counter(), time.process_time(), 0
        while not taken or time.perf_counter() - started < seconds:
            advance()
            taken += steps
        return 1e6 * (time.process_time() - busy) / taken

    return trial


def _ours(config: PPOConfig, cleanup: ExitStack) -> Callable[[], object]:
    training = config.training(Pictures, steps=0, seed=0)
    cleanup.callback(training.environments.close)

    def advance() -> None:
        training.steps += config.rollout_size
        training.run(Nobody())

    return advance
