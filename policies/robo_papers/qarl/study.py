"""Training against adversaries: return without one, against the worse of two fresh adversaries, and over a grid of physics.

python -m robo_papers.qarl.study --seeds 3 --archive docs/benchmarks/qarl.json
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from robo_app.experiments.results import Results, add_archive_option
from robo_bench.trainings import Silent
from robo_papers.qarl.forces import Forces, OpposedEnv
from robo_papers.qarl.learner import AdversarialTraining, QARLConfig
from robo_policies.learners.sac import SAC, SACConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.protocols.components import Policy
from robo_rl.settings import updated
from robo_rl.training.off_policy import online_training

SETTINGS: dict[str, Any] = {
    "network": {"hidden": (64, 64)},
    "replay": {"learning_starts": 500, "capacity": 100_000},
    **{"batch_size": 64, "lr": 1e-3, "tau": 0.02, "discount": 0.98},
    **{"initial_temperature": 0.02, "target_entropy_per_action": -2.0},
}
"""Of both agents, and of the worst-case adversary."""
GRID = [{"mass": mass, "strength": strength} for mass in (0.5, 1.0, 2.0) for strength in (0.5, 1.0, 2.0)]


@dataclass(frozen=True)
class Task:
    """Environment of the study, with the forces that the adversary has in it."""

    name: str
    force: float
    """[N] largest force along each axis"""
    bodies: tuple[str, ...]
    axes: str
    bound: float
    """Return that lets QARL's adversary become more rational."""
    steps: int


POLE, POLES = "gymnasium/InvertedPendulum-v5", "gymnasium/InvertedDoublePendulum-v5"
TASKS = {
    "pendulum": Task(POLE, 3.0, ("pole",), "x", 500.0, 20_000),
    "pendulum-1N": Task(POLE, 1.0, ("pole",), "x", 500.0, 40_000),
    "double-pendulum": Task(POLES, 4.0, ("pole2",), "x", 5_000.0, 30_000),
    "reacher": Task("gymnasium/Reacher-v5", 300.0, ("fingertip",), "xy", -9.0, 30_000),
}


def methods(task: Task) -> dict[str, QARLConfig]:
    """Return the study's methods: name -> settings."""
    adversary = {"bodies": task.bodies, "axes": task.axes, "force": task.force, "phase": 3}
    shared: dict[str, Any] = {**SETTINGS, "adversary": adversary}
    shared |= {"first_temperature": 2.0, "last_temperature": 0.02}
    shared |= {"phase": 10}
    return {
        "SAC": updated(QARLConfig(), shared, {"adversary": {"force": 0.0}}, curriculum="none"),
        "RARL": updated(QARLConfig(), shared, curriculum="none"),
        "force-curriculum": updated(QARLConfig(), shared, curriculum="force"),
        "linear-temperature": updated(QARLConfig(), shared, curriculum="temperature"),
        "QARL": updated(QARLConfig(), shared, return_bound=task.bound, rollouts=10),
    }


def worst_case(task: Task, policy: Policy, seed: int, steps: int) -> float:
    """Train a fresh adversary against a frozen policy; return the policy's mean return against it."""
    environment = make_environment(task.name)
    opposed = OpposedEnv(environment, policy, Forces(environment, task.bodies, task.axes, task.force))
    config = updated(SACConfig(), SETTINGS)
    learner = SAC(opposed.environment_spec, config, seed)
    online_training(opposed, learner, config.sampling, steps=steps, seed=seed).run(Silent())
    return -evaluate(learner.policy, opposed, 10).mean_return.estimate


def judged(task: Task, config: QARLConfig, seed: int, adversary_steps: int) -> dict[str, Any]:
    """Train by one method, and return the figures of the policy: return, worst case, grid of physics."""
    factory = partial(make_environment, task.name)
    training = AdversarialTraining(factory(), config, steps=task.steps, seed=seed)
    training.run(Silent())
    grid = []
    for cell in GRID:
        perturbed = make_environment(task.name, wrappers=[{"name": "perturbed", **cell}])
        grid.append(evaluate(training.policy, perturbed, 3).mean_return.estimate)
    return {
        "nominal": evaluate(training.policy, factory(), 10).mean_return.estimate,
        "worst case": min(worst_case(task, training.policy, 1000 + 10 * seed + number, adversary_steps) for number in range(2)),
        "grid": float(np.mean(grid)),
        "worst of grid": float(np.min(grid)),
        "temperature": training.curriculum.mean,
    }


def main() -> None:
    """Train what is missing in the folder, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--task", choices=TASKS, default="pendulum")
    parser.add_argument("--steps", type=int, default=0, help="of each training, instead of the task's")
    parser.add_argument("--only", nargs="*", default=[], help="methods")
    parser.add_argument("--adversary-steps", type=int, default=5_000)
    add_archive_option(parser, "qarl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = Results("qarl", arguments.archive, {"adversary_steps": arguments.adversary_steps})
    task = replace(TASKS[arguments.task], steps=arguments.steps or TASKS[arguments.task].steps)
    chosen = {name: config for name, config in methods(task).items() if not arguments.only or name in arguments.only}
    for seed in range(arguments.seeds):
        for name, config in chosen.items():
            judge = partial(judged, task, config, seed, arguments.adversary_steps)
            print(name, seed, results.measured(name, seed, judge, on=arguments.task, task=task, config=config), flush=True)
    print(results.page())


if __name__ == "__main__":
    main()
