"""Measure environment steps per second of PPO on HalfCheetah against Stable-Baselines3's, at equal hyper-parameters.

Rollouts of 2048 steps, minibatches of 64, ten passes, two layers of 64, normalised observations and rewards. Simulation,
acting and learning are all counted. The contestants take turns, whole rollouts with their updates each.
Stable-Baselines3 runs in each vector setting given, every contestant in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from robo_bench.contestant import Contestant
from robo_bench.measurement import Cases, Effort, Measurement, Trial, measurement
from robo_bench.off_policy import unit
from robo_policies.learners.ppo import PPOConfig
from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.on_policy import OnPolicyTraining
from robo_rl.protocols import Training
from robo_rl.threads import use_threads
from robo_rl.types import Metrics

TASK = "HalfCheetah-v5"
CASE = f"ppo {TASK}, rollouts of 2048, batch 64, 2x64"
PEERS: tuple[tuple[str, int], ...] = (
    ("DummyVecEnv", 1),
    ("DummyVecEnv", 4),
    ("DummyVecEnv", 16),
    ("SubprocVecEnv", 2),
    ("SubprocVecEnv", 4),
    ("SubprocVecEnv", 16),
)
"""Vector settings of Stable-Baselines3, with the number of environments."""


def cases(effort: Effort) -> Cases:
    """Return the one case: environment steps per second of whole rollouts and their updates."""
    return {CASE: lambda: measure(effort)}


def measure(
    effort: Effort,
    peers: Sequence[tuple[str, int]] = PEERS,
    config: PPOConfig = PPOConfig(),  # noqa: B008 - frozen
) -> Measurement:
    """Measure the case against the peers given, each in a process of its own with its own default of threads."""
    settings = asdict(config)
    with ExitStack() as stack:
        own = {"settings": settings, "torch_threads": effort.threads or 1, "simulation_threads": effort.cores}
        trials = {"ours": stack.enter_context(Contestant(f"{__name__}:ours", own, effort))}
        for kind, count in peers:
            if effort.processor_time and kind == "SubprocVecEnv":
                continue  # what its processes use is not counted
            arguments = {"settings": settings, "kind": kind, "count": count}
            peer = Contestant(f"{__name__}:stable_baselines", arguments, effort)
            trials[f"sb3 {kind} {count}"] = stack.enter_context(peer)
        return measurement("learner", CASE, unit(effort), trials, effort)


def _paced(advance: Callable[[], object], steps: int) -> Trial:
    """Returns a trial that advances for so many seconds, once at least, and returns steps per second."""

    def trial(seconds: float) -> float:
        started, taken = time.perf_counter(), 0
        while not taken or time.perf_counter() - started < seconds:
            advance()
            taken += steps
        return taken / (time.perf_counter() - started)

    return trial


class _Cheetahs:
    """Makes HalfCheetahs one by one, or in one batch simulated by some threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __call__(self) -> gymnasium.Env[object, object]:
        return make_environment(f"gymnasium/{TASK}")

    def make_vector(self, num_envs: int) -> VectorEnv[object, object, object]:
        mode = AutoresetMode.SAME_STEP
        return make_vector_environment(f"gymnasium/{TASK}", num_envs, threads=self._threads, autoreset_mode=mode)


class Nobody:
    """Observes nothing."""

    def on_episode(self, step: int, *, episode_return: float, length: int, success: bool | None, stop_reason: str) -> None:
        """Does nothing."""

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Does nothing."""

    def on_step(self, step: int, training: Training) -> None:
        """Does nothing."""


def ours(settings: dict[str, Any], torch_threads: int, simulation_threads: int) -> Trial:
    """Return a trial of our PPO, whole rollouts with their updates."""
    use_threads(torch_threads)
    config = _config(settings)
    training: OnPolicyTraining = config.training(_Cheetahs(simulation_threads), steps=0, seed=0)

    def advance() -> None:
        training.steps += config.rollout_size
        training.run(Nobody())

    return _paced(advance, config.rollout_size)


def stable_baselines(settings: dict[str, Any], kind: str, count: int) -> Trial:
    """Return a trial of Stable-Baselines3's PPO at the same hyper-parameters in one of its vector settings."""
    config = _config(settings)
    make: Callable[..., VecEnv] = {"DummyVecEnv": DummyVecEnv, "SubprocVecEnv": SubprocVecEnv}[kind]
    environments = VecNormalize(make([_plain_cheetah] * count))
    steps, size = config.rollout_size // count, config.batch_size
    network = {"net_arch": [*config.hidden]}
    model = SB3PPO(
        "MlpPolicy", environments, n_steps=steps, batch_size=size, n_epochs=config.epochs, policy_kwargs=network, device="cpu"
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    return _paced(lambda: model.learn(config.rollout_size, reset_num_timesteps=False), config.rollout_size)


def _config(settings: dict[str, Any]) -> PPOConfig:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return PPOConfig(**given)


def _plain_cheetah() -> gymnasium.Env[object, object]:
    return gymnasium.make(TASK)
