"""Rollouts with a cost from starts that a run of FISOR holds for feasible, V_h <= 0, and from others; policies beside it.

python -m robo_papers.fisor.study FISOR_RUN [RUN ...] --episodes 50

Episodes are drawn until that number of them have a feasible start. All policies play the same ones.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import robo_rl
from robo_app.experiments.results import Results, add_archive_option
from robo_app.training.assembly import learner_of, recipe_of
from robo_papers.fisor.learner import FISOR
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import Evaluation, evaluate
from robo_rl.evaluation.statistics import wilson
from robo_rl.runs.run import Run
from robo_rl.spec.environment import Observation
from robo_rl.types import Array

FIRST = 1_000_000
"""Reset seed of the first episode."""
MOST = 20
"""Largest number of episodes that are tried for each wanted one."""


def restored(run: Run) -> FISOR:
    """Return the FISOR learner of a finished run."""
    learner = learner_of(recipe_of(run), run.spec)
    if not isinstance(learner, FISOR):
        raise SystemExit(f"{run.path}: not a run of fisor, which alone has a feasible region")
    learner.load_state_dict(run.load().parts["learner"])
    return learner


@torch.no_grad()
def danger(learner: FISOR, observation: Observation) -> float:
    """Return V_h of an observation; 0 or less is feasible."""
    encoder, device = learner.parts.encoder, learner.parts.device
    rows: dict[str, Array] = {name: np.asarray(observation[name])[None] for name in encoder.reads}
    return float(learner.danger_value(encoder(encoder.tensors(encoder.stack(rows), rows, device)))[0])


def costs(outcome: Evaluation) -> Array:
    """Return the cost of each evaluated episode: the sum of all its costs."""
    return np.asarray(np.sum([values for name, values in outcome.measured.items() if name.startswith("cost_")], axis=0))


def spending(run: Run, environment: gymnasium.Env[Any, Any], seeds: list[int]) -> dict[str, list[float]]:
    """Play one episode of a run's policy from each seed; return the sums of all costs of each episode, as the figure "cost"."""
    return {"cost": costs(evaluate(run.policy(), environment, seeds=seeds)).tolist()}


def main() -> None:
    """Run the study of this module as a command, and print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, help="of fisor first")
    parser.add_argument("--episodes", type=int, default=50, help="with a feasible start")
    add_archive_option(parser, "fisor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    first, *_ = runs = [robo_rl.open_run(path) for path in arguments.runs]
    learner, place = restored(first), first.recipe["environment"]
    environment = make_environment(place["name"], **place["arguments"])
    inside, outside = list[int](), list[int]()
    for seed in range(FIRST, FIRST + MOST * arguments.episodes):
        if len(inside) < arguments.episodes:
            (inside if danger(learner, environment.reset(seed=seed)[0]) <= 0.0 else outside).append(seed)
    results = Results("fisor", arguments.archive, {"environment": place["name"], "feasible to": first.path.name})
    for run in runs:
        words = []
        for name, seeds in (("feasible", inside), ("other", outside)):
            if seeds:
                spend = partial(spending, run, environment, seeds)
                recipe = run.recipe
                about = {"run": run.path.name, "episodes": len(seeds), "steps": recipe["steps"]}
                spent = np.asarray(results.measured(recipe["algorithm"], recipe["seed"], spend, on=name, **about)["cost"])
                share = wilson(int((spent > 0.0).sum()), len(spent))
                words.append(f"{len(spent)} {name} starts: {share:.0%} of rollouts with a cost, mean cost {spent.mean():.4g}")
        print(f"{run.path.name:32}", "; ".join(words), flush=True)


if __name__ == "__main__":
    main()
