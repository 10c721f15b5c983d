"""Measure updates per second of SAC beside Stable-Baselines3's, at equal settings, in turns on the same machine.

    python -m robo_policies.speed --threads 1

Batch 256, two layers of 256, 17 observations and 6 actions (the sizes of HalfCheetah), two critics, sampling included.
The learners take turns, one update each, so that other load on the machine hits all alike.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC as SB3SAC
from stable_baselines3.common.logger import Logger

from robo_policies.rlpd import RLPDConfig
from robo_policies.sac import SACConfig
from robo_rl.replay import ReplayBuffer
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Transition

OBSERVATIONS, ACTIONS, STORED = 17, 6, 20_000


def main() -> None:
    """Prints one line per learner."""
    parser = argparse.ArgumentParser(description="Updates per second at batch 256, two layers of 256.")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--updates", type=int, default=300, help="updates of each learner")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    learners = {"sb3-sac": stable_baselines(), "sac": our_sac(), "rlpd, critic updates": our_rlpd()}
    print_table(measure(learners, arguments.updates), arguments.threads)
    print_acting()


def measure(learners: dict[str, Callable[[], object]], updates: int) -> dict[str, list[float]]:
    """Returns the seconds of each update, learners taking turns; the first ten are dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(updates + 10):
        for name, update in learners.items():
            started = time.perf_counter()
            update()
            seconds[name].append(time.perf_counter() - started)
    return {name: values[10:] for name, values in seconds.items()}


def stable_baselines() -> Callable[[], object]:
    """Returns one `train` step of Stable-Baselines3's SAC on a filled replay memory."""
    model = SB3SAC("MlpPolicy", _Still(), buffer_size=STORED, device="cpu")
    model.set_logger(Logger(folder=None, output_formats=[]))
    assert model.replay_buffer is not None
    random = np.random.default_rng(0)
    for _ in range(STORED):
        observation, following = random.normal(size=(2, 1, OBSERVATIONS))
        action = random.uniform(-1, 1, (1, ACTIONS))
        model.replay_buffer.add(observation, following, action, np.ones(1), np.zeros(1), [{}])
    return lambda: model.train(gradient_steps=1, batch_size=256)


def our_sac() -> Callable[[], object]:
    """Returns one update of SAC."""
    learner, replay = SACConfig().build(SPEC, 0), _filled()
    return lambda: learner.update(replay.sample(256))


def our_rlpd() -> Callable[[], object]:
    """Returns one update of RLPD with two critics and two critic steps (the settings of HIL-SERL)."""
    config = RLPDConfig(critics=2, updates_per_step=2)
    learner, replay = config.build(SPEC, 0), _filled()
    return lambda: learner.update(replay.sample(512))


def print_table(seconds: dict[str, list[float]], threads: int) -> None:
    """Prints medians and ratios to Stable-Baselines3."""
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    fastest = {name: float(np.quantile(values, 0.05)) for name, values in seconds.items()}
    sys.stdout.write(f"PyTorch {torch.__version__}, {threads} thread(s); median and 5th percentile\n")
    for name, median in medians.items():
        ratio, best = medians["sb3-sac"] / median, fastest["sb3-sac"] / fastest[name]
        sys.stdout.write(
            f"{name:22} {1e3 * median:7.2f} ms {1e3 * fastest[name]:7.2f} ms {1 / median:7.0f} updates/s "
            f"  {ratio:.2f} x and {best:.2f} x sb3-sac\n"
        )


def print_acting(calls: int = 2000) -> None:
    """Prints the time of one action."""
    policy = SACConfig().build(SPEC, 0).policy
    observation = {"state": np.zeros(OBSERVATIONS, np.float32)}
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        policy.act(observation)
        seconds.append(time.perf_counter() - started)
    sys.stdout.write(f"{'act, one observation':22} {1e6 * float(np.median(seconds)):7.0f} us\n")


SPEC = EnvironmentSpec(
    "speed",
    ObservationSpec((ArraySpec("state", (OBSERVATIONS,)),)),
    ActionSpec(tuple("abcdef"), (-1.0,) * ACTIONS, (1.0,) * ACTIONS, ("1",) * ACTIONS),
)


def _filled() -> ReplayBuffer:
    replay, random = ReplayBuffer(SPEC, STORED * 2, 0), np.random.default_rng(0)
    for step in range(STORED):
        observation, following = ({"state": random.normal(size=OBSERVATIONS).astype(np.float32)} for _ in range(2))
        action = random.uniform(-1, 1, ACTIONS).astype(np.float32)
        replay.add(Transition(observation, action, 1.0, following, False, step % 1000 == 999, action))
    return replay


class _Still(gymnasium.Env[np.ndarray, np.ndarray]):
    """Only its spaces are used."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATIONS,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTIONS,))


if __name__ == "__main__":
    main()
