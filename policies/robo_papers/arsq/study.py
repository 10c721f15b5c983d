"""ARSQ on Reacher from 50 episodes of an expert, beside cloning and ARSQ without its parts; one process, minutes a training.

python -m robo_papers.arsq.study --out arsq --seeds 3
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robo_bench.reacher import ReacherExpert
from robo_bench.trainings import Silent
from robo_papers.arsq.learner import ARSQConfig
from robo_policies.learners.bc import BCConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.statistics import student_interval
from robo_rl.protocols.components import Policy
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.system.durable_files import write_durably
from robo_rl.training.off_policy import online_training
from robo_rl.types import Episode

STEPS, EPISODES, NOISE = 2_000, 50, 0.1
"""Environment steps of a training, which are its updates, too, but for the first 500; number of recorded episodes; their
noise."""
JUDGED = range(900_000, 900_020)
SHARED: dict[str, Any] = {"batch_size": 64, "network": {"hidden": (128, 128)}}
ONLINE: dict[str, Any] = {**SHARED, "experts": "all", "replay": {"learning_starts": 500}}
METHODS: dict[str, ARSQConfig | BCConfig] = {
    "ARSQ": updated(ARSQConfig(), ONLINE),
    "temperature 0.01": updated(ARSQConfig(), ONLINE, temperature=0.01),
    "without the conservative loss": updated(ARSQConfig(), ONLINE, conservative="off"),
    "cloning": updated(BCConfig(), SHARED, lr=3e-4),
}

make = partial(make_environment, "gymnasium/Reacher-v5")


def mean_return(policy: Policy) -> float:
    """Return the mean return of a policy over the episodes of the study's evaluation."""
    environment = make()
    return float(np.mean([rollout(environment, policy, seed=seed, deterministic=True).undiscounted_return for seed in JUDGED]))


def trained(config: ARSQConfig | BCConfig, episodes: Sequence[Episode], seed: int, steps: int) -> float:
    """Train by these settings, and return the mean return of the policy in the evaluation."""
    spec = specification(make())
    learner = config.build(spec, seed)
    if isinstance(config, ARSQConfig):
        online_training(
            make(), learner, config.sampling, steps=steps, seed=seed, demonstrations=episodes, acts_at_once=True
        ).run(Silent())
    else:
        replay = RecordedReplay.of(spec, episodes, seed)
        for _ in range(steps):
            learner.update(replay.sample(config.batch_size))
    return mean_return(learner.policy)


def main() -> None:
    """Train all methods and seeds whose results the folder lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="methods")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    spec = specification(make())
    expert, environment = ReacherExpert(spec, NOISE, 0), make()
    episodes = [rollout(environment, expert, seed=number) for number in range(EPISODES)]
    low, high = mean_return(RandomPolicy(spec, 0)), mean_return(ReacherExpert(spec, 0.0, 0))
    print(f"random {low:.1f}, expert {high:.1f}; scores are 0 and 100 for them", flush=True)
    print("| method | score of each seed | mean and 95 % interval |\n|---|---|---|")
    for name, config in METHODS.items():
        if given.only and name not in given.only:
            continue
        scores = []
        for seed in range(given.seeds):
            file = given.out / f"{name.replace(' ', '-')}--{seed}.json"
            if not file.exists():
                write_durably(file, json.dumps(trained(config, episodes, seed, given.steps)).encode())
            scores.append(100.0 * (json.loads(file.read_text()) - low) / (high - low))
        found = student_interval(scores)
        shown = ", ".join(f"{score:.0f}" for score in scores)
        print(f"| {name} | {shown} | {found.estimate:.0f} [{found.low:.0f}, {found.high:.0f}] |", flush=True)


if __name__ == "__main__":
    main()
