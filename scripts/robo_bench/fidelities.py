"""Plans of a quadrotor, learnt from both fidelities, from either alone, or from none: share of flights that succeed, and time.

python -m robo_bench.fidelities --out fidelities --seeds 3

The rows `slowed` fly the least-snap plan, uniformly slower by a factor; their best is what no learning at all reaches.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robo_policies.learners.mfrl import MFRLConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.evaluation.statistics import stratified_bootstrap
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.system.durable_files import write_durably
from robo_rl.types import Array

TASK = "quadrotor/Waypoints-v0"
SLOWED = (1.0, 1.02, 1.05, 1.1)


class Slowed:
    """Policy that flies the least-snap plan, slower by a factor."""

    def __init__(self, spec: EnvironmentSpec, factor: float) -> None:
        self.environment_spec = spec
        size = spec.action.size
        physical = np.where(np.arange(size) < size // 2, np.log(factor), 0.0)
        self._action = spec.action.to_normalized(physical)

    def reset(self) -> None:
        """Do nothing."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the action (26,)."""
        return self._action


class Silent:
    """Observer that keeps nothing."""

    def on_step(self, *_: Any, **__: Any) -> None:
        """Keep nothing."""

    on_episode = on_metrics = on_step


def judged(policy: Policy, episodes: int) -> dict[str, float]:
    """Return the figures of a policy in flight."""
    outcome = evaluate(policy, make_environment(TASK), episodes)
    return {
        "feasible": float(np.mean([bool(each) for each in outcome.successes])),
        "return": outcome.mean_return.estimate,
        "duration": float(np.nanmean(outcome.measured["duration_ratio"])) if any(outcome.successes) else float("nan"),
    }


def main() -> None:
    """Train what is missing in the folder, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--flights", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=["both", "low", "high"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    make = partial(make_environment, TASK)
    for factor in SLOWED:
        file = arguments.out / f"slowed-{factor:g}--all.json"
        if not file.exists():
            write_durably(file, json.dumps(judged(Slowed(specification(make()), factor), arguments.episodes)).encode())
    for seed in arguments.seeds:
        for fidelities in arguments.only:
            file = arguments.out / f"{fidelities}--{seed}.json"
            if not file.exists():
                training = MFRLConfig(fidelities=fidelities).training(make, steps=arguments.flights, seed=seed)
                training.run(Silent())
                write_durably(file, json.dumps(judged(training.policy, arguments.episodes)).encode())
    for name in [*(f"slowed-{factor:g}" for factor in SLOWED), "both", "low", "high"]:
        runs = [json.loads(file.read_text()) for file in sorted(arguments.out.glob(f"{name}--*.json"))]
        if runs:
            figures = {key: stratified_bootstrap([[run[key] for run in runs]], np.mean) for key in runs[0]}
            print(f"{name:12} {len(runs)} runs", "  ".join(f"{key} {interval:.3g}" for key, interval in figures.items()))


if __name__ == "__main__":
    main()
