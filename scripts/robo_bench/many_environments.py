"""Measure SAC in many environments of one process against one environment, at the same number of updates per step.

Whole training loops on HalfCheetah: simulation, acting, replay, one update in 16 steps, batch 256, 2 x 256 units, two critics.
Every contestant runs in its own process and is past its random steps before it is measured.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import DummyVecEnv

from robo_bench.contestant import contestant
from robo_bench.measurement import Case, Contestants, Effort, Trial, each, rate
from robo_bench.off_policy import RANDOM_STEPS, TASK, unit
from robo_bench.trainings import Environments, advancing
from robo_policies.learners.sac import SACConfig
from robo_rl.protocols.sampling import Replay
from robo_rl.spec.environment import specification
from robo_rl.system.threads import use_threads
from robo_rl.training.off_policy import online_training

COUNT = 16
EVERY, CHUNK = 16, 320  # [steps] from one update to the next; between two looks at the clock


def cases(effort: Effort) -> list[Case]:
    """Return the only case: SAC in 16 environments, compared with SAC in one."""
    setting = f"{TASK}, batch 256, 2x256, one update in {EVERY} steps"
    return [Case(f"sac in {COUNT} environments, {setting}", unit(effort), whole_loops)]


def whole_loops(effort: Effort, _: ExitStack) -> Contestants:
    """Return the contestants: our SAC in many environments and in one, and Stable-Baselines3's SAC in many."""
    trials = {count: {"count": count, "threads": effort.threads or 1} for count in (COUNT, 1)}
    return {
        "ours": contestant(f"{__name__}:ours", trials[COUNT], effort),
        "1 environment": contestant(f"{__name__}:ours", trials[1], effort),
        f"sb3 sac in {COUNT}": contestant(f"{__name__}:peer", effort=effort),
    }


def ours(count: int, threads: int) -> Trial:
    """Return a trial of our SAC in that many environments, past its random steps."""
    use_threads(threads)
    config = SACConfig(replay=Replay(learning_starts=RANDOM_STEPS, update_every=EVERY))
    factory: Any = Environments(f"gymnasium/{TASK}", threads=threads)
    environment = factory() if count == 1 else factory.make_vector(count)
    learner = config.build(environment.environment_spec if count > 1 else specification(environment), 0)
    training: Any = online_training(environment, learner, config.sampling, steps=0, seed=0)
    advancing(training, 2 * CHUNK)()
    return rate(advancing(training, CHUNK))


def peer() -> Trial:
    """Return a trial of Stable-Baselines3's SAC: one update after a step of all environments."""
    environments = DummyVecEnv([partial(gymnasium.make, TASK)] * COUNT)
    model = SAC("MlpPolicy", environments, learning_starts=RANDOM_STEPS, seed=0, device="cpu")
    learn = partial(model.learn, reset_num_timesteps=False)
    learn(2 * CHUNK)
    return rate(each(lambda: learn(CHUNK), CHUNK))
