"""Peak contact force of trained Bresa policies without their reflex, with it at the task policy's rate, and at every step.

python -m robo_papers.bresa.study RUN [RUN ...] --episodes 50

All rows share the networks of a run. `shuffled` is the control: a reflex at every step that draws its risks from those of the
row above in random order, so that it acts as often and at the wrong times.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import robo_rl
from robo_app.experiments.results import Results, add_archive_option
from robo_papers.bresa.learner import Bresa, ReflexPolicy
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.evaluation.statistics import stratified_bootstrap
from robo_rl.spec.environment import Observation
from robo_rl.types import Array


class Judge:
    """Stands in for the learner: its risks are recorded, or drawn from recorded ones in random order."""

    def __init__(self, learner: Bresa, drawn: Sequence[float] = ()) -> None:
        self._learner, self._drawn = learner, drawn
        self._random = np.random.default_rng(0)
        self.risks = list[float]()

    def judge(self, observation: Observation, action: Array) -> tuple[float, Tensor]:
        """Return the risk of an action, its own or a drawn one, and the features (1, F) for `recover`."""
        risk, features = self._learner.judge(observation, action)
        risk = float(self._random.choice(self._drawn)) if self._drawn else risk
        self.risks.append(risk)
        return risk, features

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)


def compared(run: Path, episodes: int) -> dict[str, dict[str, float]]:
    """Compare the variants of the reflex on one run: return variant -> figure -> mean over episodes."""
    policy = robo_rl.load_policy(run)
    assert isinstance(policy, ReflexPolicy)
    config, name = policy.learner.config, robo_rl.open_run(run).recipe["environment"]["name"]
    rows = {
        "off": replace(config, risk_threshold=1.0),
        "at the task's rate": replace(config, reflex_every=config.hold),
        "at every step": replace(config, reflex_every=1),
        "shuffled": replace(config, reflex_every=1),
    }
    found, kept = dict[str, dict[str, float]](), list[float]()
    for row, settings in rows.items():
        judge: Any = Judge(policy.learner, kept if row == "shuffled" else ())
        outcome = evaluate(ReflexPolicy(judge, config=settings), make_environment(name), episodes)
        kept = judge.risks or kept
        found[row] = {
            "success": float(np.mean([bool(each) for each in outcome.successes])),
            "peak force": float(np.mean(outcome.measured["peak_force"])),
            "largest": float(np.max(outcome.measured["peak_force"])),
            "cost": float(np.mean(outcome.measured["cost_force"])),
            "steps": float(np.mean(outcome.lengths)),
        }
    return found


def main() -> None:
    """Compare the variants of the reflex, and print a table with mean and interval over runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=50)
    add_archive_option(parser, "bresa")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = [compared(run, arguments.episodes) for run in arguments.runs]
    results = Results("bresa", arguments.archive, {"episodes": arguments.episodes})
    for path, table in zip(arguments.runs, tables, strict=True):
        recipe = robo_rl.open_run(path).recipe
        for row, figures in table.items():
            task = recipe["environment"]["name"]
            results.measured(row, recipe["seed"], partial(dict, figures), on=task, run=path.name, steps=recipe["steps"])
    for row in tables[0]:
        for run, table in zip(arguments.runs, tables, strict=True):
            print(f"{row:20} {run.name}", "  ".join(f"{key} {value:.4g}" for key, value in table[row].items()))
    for row, figures in tables[0].items():
        means = {key: stratified_bootstrap([[table[row][key] for table in tables]], np.mean) for key in figures}
        print(f"{row:20} all", "  ".join(f"{key} {interval:.4g}" for key, interval in means.items()))


if __name__ == "__main__":
    main()
