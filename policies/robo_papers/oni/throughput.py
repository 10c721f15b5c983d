"""Cost of a model that annotates while a policy learns: steps per second with the annotator on and off.

The model is the double that answers by rule, at once or after two seconds a call. "annotator off" makes the same captions and
rewards without questions; a bound goes without captions and rewards, too. Every trial begins with no labels, so that all
requested ones arrive within it. Whole rollouts with their updates, or the simulator alone with random actions.

    python -m robo_papers.oni.throughput --seconds 5 --repeats 3
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import tyro
from typing_extensions import override

from robo_bench.command import print_table
from robo_bench.measurement import Bound, Case, Contestants, Effort, Work, confined, timed
from robo_bench.trainings import Environments, advancing
from robo_papers.oni.annotator import Annotator
from robo_papers.oni.arrivals import RecordedAnnotator
from robo_papers.oni.questions import AnnotationRule
from robo_papers.oni.reward import ONI, ONIClassification, ONIRanking, ONIRetrieval
from robo_policies.learners.ppo import PPOConfig
from robo_rl.rewards.step_rewards.online_scoring import OnlineReward
from robo_rl.rollout.vector import VectorRollout
from robo_rl.spec.environment import specification
from robo_rl.training.on_policy import Normalization, OnPolicyTraining, UnrewardedRollout

TASK = "MiniGrid-DoorKey-8x8-v0"
DOORS = Environments(f"minigrid/{TASK}", encoding="one-hot")
CONFIG = PPOConfig(
    lr=5e-4,
    num_envs=64,
    steps_per_env=64,
    batch_size=512,
    epochs=4,
    entropy_coefficient=0.01,
    normalize=Normalization(observations=False),
)
"""Settings of PPO as in the recipe minigrid-doorkey-oni."""
KINDS: tuple[Callable[..., ONI], ...] = (ONIRetrieval, ONIClassification, ONIRanking)
SLOW_S = 2.0


def cases(effort: Effort) -> list[Case]:
    """Return the throughput cases: PPO with each of the three rewards, and random actions with the first reward.

    A case sets PyTorch's number of threads when it runs.
    """
    measured = [(f"ppo {TASK}, {kind().name}", kind(), _learning) for kind in KINDS]
    measured.append((f"{TASK} with random actions, {ONIRetrieval.name}", ONIRetrieval(), _acting))
    slow = f"a model of {SLOW_S:g} s a call"
    return [Case(f"{name}, {slow}", "steps/s", partial(_contestants, reward, work)) for name, reward, work in measured]


@dataclass(frozen=True, kw_only=True)
class Off(ONIRetrieval):
    """Control condition: the reward of ONI without any question to a language model."""

    @override
    def annotator(self) -> Annotator:
        return RecordedAnnotator([])


def _contestants(reward: ONI, work: Callable[[ONI | None, float], float], effort: Effort, _: ExitStack) -> Contestants:
    torch.set_num_threads(effort.cores)
    slow, quick = (replace(reward, rule=AnnotationRule(latency_s=seconds)) for seconds in (SLOW_S, 0.0))
    return {
        "ours": partial(work, slow),
        "a model of 0 s": partial(work, quick),
        "annotator off": partial(work, Off()),
        "no annotation": Bound(partial(work, None)),
    }


def _online(reward: ONI) -> OnlineReward:
    return replace(reward).online(specification(DOORS()), weight=1.0, discount=None)


def _learning(reward: ONI | None, seconds: float) -> float:
    """Return the speed of a fresh training."""
    given = None if reward is None else _online(reward)
    training: OnPolicyTraining = CONFIG.training(DOORS, steps=0, seed=0, reward=given)
    with closing(training.environments):
        return _speed(advancing(training, CONFIG.rollout_size), seconds)


def _acting(reward: ONI | None, seconds: float) -> float:
    """Return the speed of the simulator, with rollouts of rewards but without a learner."""
    count, length = CONFIG.num_envs, CONFIG.steps_per_env
    random = np.random.default_rng(0)
    with closing(DOORS.make_vector(count)) as environments:
        playing = VectorRollout(environments)
        seen, rollout = playing.begin(range(count)), None
        if reward is not None:
            rollout = UnrewardedRollout(_online(reward).running(count), None)
            rollout.restart(seen, playing.infos, count)

        def advance() -> int:
            for _ in range(length):
                steps = playing.step(random.integers(0, 7, count))
                if rollout is not None:
                    rollout.add(steps)
            if rollout is not None:
                rollout.rewards()
            return count * length

        return _speed(advance, seconds)


def _speed(work: Work, seconds: float) -> float:
    """Return steps per second; the first call, which includes the setup, is not counted."""
    work()
    return timed(work, seconds).rate


def main() -> None:
    """Print a row for each case as soon as it is measured."""
    effort = tyro.cli(Effort, prog="python -m robo_papers.oni.throughput", description="Measure the cost of annotation.")
    with confined(effort.threads):
        print_table("annotation", ((case, case.measure(effort)) for case in cases(effort)))


if __name__ == "__main__":
    main()
