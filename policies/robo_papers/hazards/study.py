"""Costs while learning, from the logs of an experiment: how near the limit, how long above it, and how far.

python -m robo_papers.hazards.study experiments/hazards --limit 3
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

import robo_rl
from robo_rl.runs.run import Run

TOLERANCE = 0.2
"""Share of the limit by which an episode may cost more than the limit without counting as above it."""


def curves(run: Run) -> dict[str, npt.NDArray[np.float64]]:
    """Return, by cost, the steps and the mean costs of the last 100 episodes of the policy that explores, (K, 2)."""
    rows = defaultdict(list)
    for line in run.metrics():
        for tag, value in line.items():
            if tag.startswith("costs/"):
                rows[tag.removeprefix("costs/")].append((line["step"], value))
    return {name: np.array(found, np.float64) for name, found in rows.items()}


def figures(curve: npt.NDArray[np.float64], limit: float) -> dict[str, float]:
    """Return figures of a curve (K, 2) of steps and mean costs per episode, beside a limit.

    Returns:
        "late", the mean cost over the second half; "above", the share of points more than a tolerance above the limit;
        "excess", the mean cost above the limit.
    """
    steps, costs = curve.T
    return {
        "late": float(costs[steps > steps[-1] / 2].mean()),
        "above": float((costs > (1.0 + TOLERANCE) * limit).mean()),
        "excess": float(np.maximum(costs - limit, 0.0).mean()),
    }


def main() -> None:
    """Run the study of this module as a command: print figures of the costs of each run of an experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("experiment", type=Path, help="its folder")
    parser.add_argument("--limit", type=float, required=True, help="of the cost per episode")
    arguments = parser.parse_args()
    found = defaultdict(list)
    for path in sorted((arguments.experiment / "runs").iterdir()):
        if (path / "run.json").exists():
            run = robo_rl.open_run(path)
            for cost, curve in curves(run).items():
                found[run.recipe["name"], cost].append(figures(curve, arguments.limit))
    for (name, cost), runs in found.items():
        words = (f"{key} {', '.join(f'{run[key]:.3g}' for run in runs)}" for key in runs[0])
        print(f"{name:28} {cost:8} {len(runs)} runs  {'  '.join(words)}")


if __name__ == "__main__":
    main()
