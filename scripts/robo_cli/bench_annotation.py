"""What it costs that a model annotates what happens while a policy learns: steps per second with the annotator on and off.

The model is the double that answers by rule, at once or after two seconds a call. "annotator off" makes the same captions and
rewards, and asks nothing; a bound goes without captions and rewards, too. Every trial begins with no labels, so that all
that are ever asked for arrive within it. Whole rollouts with their updates, or the simulator alone with random actions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import override

from robo_policies.learners.ppo import PPOConfig
from robo_rl.benchmark import Cases, Effort, Measurement, Trial, measurement
from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.on_policy import OnPolicyTraining, UnrewardedRollout
from robo_rl.protocols import Training
from robo_rl.rewards.annotation.annotator import Annotator
from robo_rl.rewards.annotation.captioning import RecordedAnnotator
from robo_rl.rewards.annotation.oni import ONI, ONIClassification, ONIRanking, ONIRetrieval
from robo_rl.rewards.annotation.questions import Rule
from robo_rl.rewards.online import OnlineReward
from robo_rl.spec import specification
from robo_rl.types import Metrics

TASK = "MiniGrid-DoorKey-8x8-v0"
ENCODING = "one-hot"
CONFIG = PPOConfig(
    lr=5e-4,
    num_envs=64,
    steps_per_env=64,
    batch_size=512,
    epochs=4,
    entropy_coefficient=0.01,
    normalize_observations=False,
)
"""As in the recipe minigrid-doorkey-oni."""
KINDS: tuple[Callable[..., ONI], ...] = (ONIRetrieval, ONIClassification, ONIRanking)
SLOW_S = 2.0


def cases(effort: Effort) -> Cases:
    """Returns PPO with each of the three rewards, and the simulator alone with the first; sets PyTorch's threads."""
    found: Cases = {}
    for kind in KINDS:
        name = f"ppo {TASK}, {kind().name}, a model of {SLOW_S:g} s a call"
        found[name] = partial(_measure, name, kind(), _learning, effort)
    name = f"{TASK} with random actions, {ONIRetrieval.name}, a model of {SLOW_S:g} s a call"
    return found | {name: partial(_measure, name, ONIRetrieval(), _acting, effort)}


@dataclass(frozen=True, kw_only=True)
class Off(ONIRetrieval):
    """Asks nothing."""

    @override
    def annotator(self) -> Annotator:
        return RecordedAnnotator([])


def _measure(case: str, reward: ONI, work: Callable[[ONI | None], Trial], effort: Effort) -> Measurement:
    torch.set_num_threads(effort.cores)
    slow, quick = (replace(reward, rule=Rule(latency_s=seconds)) for seconds in (SLOW_S, 0.0))
    trials = {"ours": work(slow), "a model of 0 s": work(quick), "annotator off": work(Off()), "no annotation": work(None)}
    return measurement("annotation", case, "steps/s", trials, effort, bounds=["no annotation"])


def _online(reward: ONI) -> OnlineReward:
    return replace(reward).online(specification(_Doors()()), weight=1.0, discount=None)


def _learning(reward: ONI | None) -> Trial:
    """Returns a trial of fresh trainings."""

    def trial(seconds: float) -> float:
        given = None if reward is None else _online(reward)
        training: OnPolicyTraining = CONFIG.training(_Doors(), steps=0, seed=0, reward=given)

        def advance() -> int:
            training.steps += CONFIG.rollout_size
            training.run(_Nobody())
            return CONFIG.rollout_size

        with closing(training.environments):
            return _speed(advance, seconds)

    return trial


def _acting(reward: ONI | None) -> Trial:
    """Returns a trial of the simulator, with rollouts of rewards but without a learner."""

    def trial(seconds: float) -> float:
        count, length = CONFIG.num_envs, CONFIG.steps_per_env
        random = np.random.default_rng(0)
        with ExitStack() as cleanup:
            environments = _Doors().make_vector(count)
            cleanup.callback(environments.close)
            seen, infos = environments.reset(seed=0)
            rollout = None
            if reward is not None:
                rollout = UnrewardedRollout(_online(reward).running(count), None)
                rollout.restart(seen, infos, count)

            def advance() -> int:
                for _ in range(length):
                    actions = random.integers(0, 7, count)
                    outcome = environments.step(actions)
                    if rollout is not None:
                        rollout.add(actions, outcome)
                if rollout is not None:
                    rollout.rewards()
                return count * length

            return _speed(advance, seconds)

    return trial


def _speed(advance: Callable[[], int], seconds: float) -> float:
    """Returns steps per second; the first call, which makes what is made once, is not counted."""
    advance()
    started, taken = time.perf_counter(), 0
    while not taken or time.perf_counter() - started < seconds:
        taken += advance()
    return taken / (time.perf_counter() - started)


class _Doors:
    """Makes the environments, one by one or many in one object."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return make_environment(f"minigrid/{TASK}", encoding=ENCODING)

    def make_vector(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        same_step = AutoresetMode.SAME_STEP
        return make_vector_environment(f"minigrid/{TASK}", num_envs, autoreset_mode=same_step, encoding=ENCODING)


class _Nobody:
    """Observes nothing."""

    def on_episode(self, step: int, *, episode_return: float, length: int, success: bool | None, stop_reason: str) -> None: ...

    def on_metrics(self, step: int, metrics: Metrics) -> None: ...

    def on_step(self, step: int, training: Training) -> None: ...
