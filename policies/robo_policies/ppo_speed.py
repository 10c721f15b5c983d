"""Measure environment steps per second of PPO on HalfCheetah beside Stable-Baselines3's, at equal hyper-parameters.

    python -m robo_policies.ppo_speed --threads 1

Rollouts of 2048 steps, minibatches of 64, ten passes, two layers of 64, normalised observations and rewards. Simulation,
acting and learning are all counted. The contestants take turns, one rollout and its update each, in an order that turns
round every time, so that other load on the machine hits all alike. Stable-Baselines3 runs in each vector setting given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from robo_policies.ppo import PPOConfig
from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.on_policy import OnPolicyTraining
from robo_rl.protocols import Training
from robo_rl.types import Metrics

TASK = "HalfCheetah-v5"
PEERS: tuple[tuple[type[VecEnv], int], ...] = (
    (DummyVecEnv, 1),
    (DummyVecEnv, 4),
    (DummyVecEnv, 16),
    (SubprocVecEnv, 2),
    (SubprocVecEnv, 4),
    (SubprocVecEnv, 16),
)
"""Vector settings of Stable-Baselines3, with the number of environments."""

Contestant = Callable[[], object]
"""Collects one rollout and learns from it."""


@dataclass(frozen=True)
class Measurement:
    """Medians of one case, as `robo-rl bench` prints them."""

    case: str
    unit: str
    ours: float
    peers: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Ours over the best peer."""
        return self.ours / max(self.peers.values())


def measure(
    rounds: int = 5,
    *,
    threads: int = 1,
    peers: Sequence[tuple[type[VecEnv], int]] = PEERS,
    config: PPOConfig = PPOConfig(),  # noqa: B008 - frozen
) -> Measurement:
    """Returns medians over `rounds` rollouts of each contestant, after one that does not count; sets PyTorch's threads."""
    torch.set_num_threads(threads)
    with ExitStack() as cleanup:
        contestants: dict[str, Contestant] = {"ours": _ours(config, threads, cleanup)}
        for kind, count in peers:
            contestants[f"sb3 {kind.__name__} {count}"] = _stable_baselines(config, kind, count, cleanup)
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(rounds + 1):
            for name in list(contestants)[:: 1 if turn % 2 else -1]:
                started = time.perf_counter()
                contestants[name]()
                seconds[name].append(time.perf_counter() - started)
    speeds = {name: config.rollout_size / float(np.median(values[1:])) for name, values in seconds.items()}
    return Measurement(f"ppo {TASK}, {threads} thread(s)", "steps/s", speeds.pop("ours"), speeds)


class _Cheetahs:
    """Makes HalfCheetahs one by one, or in one batch simulated by some threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __call__(self) -> gymnasium.Env[object, object]:
        return make_environment(f"gymnasium/{TASK}")

    def make_vector(self, num_envs: int) -> VectorEnv[object, object, object]:
        mode = AutoresetMode.SAME_STEP
        return make_vector_environment(f"gymnasium/{TASK}", num_envs, threads=self._threads, autoreset_mode=mode)


class _Nobody:
    """Observes nothing."""

    def on_episode(self, step: int, *, episode_return: float, length: int, success: bool | None, stop_reason: str) -> None: ...

    def on_metrics(self, step: int, metrics: Metrics) -> None: ...

    def on_step(self, step: int, training: Training) -> None: ...


def _ours(config: PPOConfig, threads: int, cleanup: ExitStack) -> Contestant:
    training: OnPolicyTraining = config.training(_Cheetahs(threads), steps=0, seed=0)
    cleanup.callback(training.environments.close)

    def advance() -> None:
        training.steps += config.rollout_size
        training.run(_Nobody())

    return advance


def _stable_baselines(config: PPOConfig, kind: type[VecEnv], count: int, cleanup: ExitStack) -> Contestant:
    make: Callable[..., VecEnv] = kind
    environments = VecNormalize(make([_plain_cheetah] * count))
    cleanup.callback(environments.close)
    steps, size = config.rollout_size // count, config.batch_size
    network = {"net_arch": [*config.hidden]}
    model = SB3PPO(
        "MlpPolicy", environments, n_steps=steps, batch_size=size, n_epochs=config.epochs, policy_kwargs=network, device="cpu"
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    return lambda: model.learn(config.rollout_size, reset_num_timesteps=False)


def _plain_cheetah() -> gymnasium.Env[object, object]:
    return gymnasium.make(TASK)


def main() -> None:
    """Prints one line per contestant."""
    parser = argparse.ArgumentParser(description="Steps per second of PPO on HalfCheetah.")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch, and of our simulation")
    parser.add_argument("--rounds", type=int, default=5, help="rollouts of each contestant")
    arguments = parser.parse_args()
    result = measure(arguments.rounds, threads=arguments.threads)
    sys.stdout.write(f"{result.case}: median over {arguments.rounds} rollouts\n")
    for name, speed in {"ours": result.ours, **result.peers}.items():
        sys.stdout.write(f"{name:24} {speed:8.0f} {result.unit}   ours is {result.ours / speed:.2f} x\n")


if __name__ == "__main__":
    main()
