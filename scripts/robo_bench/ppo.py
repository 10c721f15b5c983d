"""Measure PPO on HalfCheetah against Stable-Baselines3's, and the cost of a picture.

HalfCheetah: rollouts of 2048 steps, minibatches of 64, ten passes, two layers of 64, normalised observations and rewards;
simulation, acting and learning are all counted. Stable-Baselines3 has the same hyper-parameters and runs in several vector
settings, every contestant in its own process.

Pictures: 96 x 96 x 6, the size of the bird's-eye view of `carla/`, and 60 numbers, of an environment of negligible
cost: the processor time of acting and learning, with the picture and without.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common import vec_env
from stable_baselines3.common.logger import Logger

from robo_bench.contestant import contestant
from robo_bench.measurement import Bound, Case, Contestants, Effort, Trial, each, microseconds, rate
from robo_bench.off_policy import unit
from robo_bench.trainings import Environments, advancing
from robo_policies.learners.ppo import PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.system.threads import use_threads
from robo_rl.training.on_policy import Normalization

TASK = "HalfCheetah-v5"
PEERS: dict[str, tuple[int, ...]] = {"DummyVecEnv": (1, 4, 16), "SubprocVecEnv": (2, 4, 16)}
"""Vector settings of Stable-Baselines3, with the numbers of environments."""
CONFIG = PPOConfig()
PICTURES = PPOConfig(
    num_envs=4,
    steps_per_env=128,
    batch_size=128,
    epochs=4,
    network=PolicyValueNetwork(convolutions=(8, 16, 32, 32)),
    normalize=Normalization(rewards=False),
)


def cases(effort: Effort) -> list[Case]:
    """Return whole rollouts with their updates, and the cost of a picture, which sets PyTorch's threads."""
    of_picture = "ppo with a picture 96x96x6, rollouts of 512, batch 128, 4 passes: processor time of a step"
    return [
        Case(f"ppo {TASK}, rollouts of 2048, batch 64, 2x64", unit(effort), whole_loops),
        Case(of_picture, "us", with_pictures),
    ]


def whole_loops(effort: Effort, _: ExitStack, peers: dict[str, tuple[int, ...]] = PEERS) -> Contestants:
    """Return ours and the peers given, each in its own process with its own default of threads."""
    own = {"torch_threads": effort.threads or 1, "simulation_threads": effort.cores}
    trials = {"ours": contestant(f"{__name__}:ours", own, effort)}
    for kind, counts in peers.items():
        if effort.processor_time and kind == "SubprocVecEnv":
            continue  # its child processes are not counted
        for count in counts:
            setting = {"kind": kind, "count": count}
            trials[f"sb3 {kind} {count}"] = contestant(f"{__name__}:stable_baselines", setting, effort)
    return trials


def ours(torch_threads: int, simulation_threads: int) -> Trial:
    """Return a trial of our PPO, whole rollouts with their updates."""
    use_threads(torch_threads)
    training = CONFIG.training(Environments(f"gymnasium/{TASK}", threads=simulation_threads), steps=0, seed=0)
    return rate(advancing(training, CONFIG.rollout_size))


def stable_baselines(kind: str, count: int) -> Trial:
    """Return a trial of Stable-Baselines3's PPO with the hyper-parameters of ours: environment steps per second.

    Args:
        kind: Name of a vector environment class of Stable-Baselines3, such as DummyVecEnv.
        count: Number of environments.
    """
    environments = vec_env.VecNormalize(getattr(vec_env, kind)([partial(gymnasium.make, TASK)] * count))
    steps, size, network = CONFIG.rollout_size // count, CONFIG.batch_size, {"net_arch": [*CONFIG.network.hidden]}
    model = SB3PPO(
        "MlpPolicy", environments, n_steps=steps, batch_size=size, n_epochs=CONFIG.epochs, policy_kwargs=network, device="cpu"
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    return rate(each(lambda: model.learn(CONFIG.rollout_size, reset_num_timesteps=False), CONFIG.rollout_size))


def with_pictures(effort: Effort, stack: ExitStack, config: PPOConfig = PICTURES) -> Contestants:
    """Return two trials of PPO as contestants: learning with pictures, and with vectors alone; processor time per step."""
    use_threads(effort.threads or 1)

    def trial(config: PPOConfig) -> Trial:
        training = config.training(Pictures, steps=0, seed=0)
        stack.callback(training.environments.close)
        return microseconds(advancing(training, config.rollout_size))

    return {"ours": trial(config), "vectors alone": Bound(trial(updated(config, network={"convolutions": ()})))}


class Pictures(gymnasium.Env[Any, Any]):
    """Environment that shows one of a few prepared pictures, and numbers; actions have no effect."""

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
        """Begin an episode."""
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next prepared picture; action and reward have no meaning, and an episode is cut after 200 steps."""
        self._step += 1
        return self._observation(), float(self._step % 7), False, self._step % 200 == 0, {}

    def _observation(self) -> dict[str, Any]:
        return {"state": self._states[self._step % 16], "birdseye": self._pictures[self._step % 16]}
