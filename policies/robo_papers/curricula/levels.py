"""Success of a cloned policy on the levels that it learned from, and on others, by their number at equal data.

python -m robo_papers.curricula.levels --seeds 3
python -m robo_papers.curricula.levels --layouts
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import robo_rl
from robo_app.experiments.results import Results, add_archive_option
from robo_datasets.dataset import Dataset
from robo_datasets.recorder import record_episode
from robo_rl.environments.levels import KEPT_APART, Split, level_seed
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.spec.environment import specification

COUNTS, MOST = (1, 10, 100), 1000
NAME, NOISE = "robo/ArmPush-v0", 0.2
ARGUMENTS: dict[str, Any] = {"action_repeat": 3}
RECIPE: dict[str, Any] = {
    "learner": {"network": {"hidden": [128, 128]}, "lr": 1e-3},
    "evaluation": {"episodes": 1, "videos": 0},
}


def recorded(folder: Path, levels: Sequence[int], episodes: int) -> Dataset:
    """Record the scripted expert on these levels in turn, and return the dataset."""
    environment = make_environment(NAME, **ARGUMENTS)
    expert_for = environment.get_wrapper_attr("scripted_policy")
    dataset = Dataset.create(folder, specification(environment), {"environment": NAME, "arguments": ARGUMENTS})
    with dataset.writer() as writer:
        for number in range(episodes):
            seed = level_seed("train", levels[number % len(levels)])
            record_episode(environment, expert_for(number, noise=NOISE), writer, seed=seed, source="scripted")
    environment.close()
    return dataset


def scores(folder: Path, count: int, seed: int, episodes: int, updates: int, tests: int) -> tuple[float, float]:
    """Clone the expert on some levels; return the success rates on these levels and on those of the test."""
    levels = range(seed * MOST, seed * MOST + count)  # each seed has others
    dataset = recorded(folder / "data", levels, episodes)
    run = robo_rl.train("offline-bc", seed=seed, steps=updates, dataset=dataset.path, out=folder, **RECIPE)
    environment, policy = make_environment(NAME, **ARGUMENTS), run.policy()
    found = []
    for split, chosen in (("train", levels[:tests]), ("test", range(tests))):
        judged = evaluate(policy, environment, seeds=[level_seed(split, level) for level in chosen])  # type: ignore[arg-type]
        found.append(judged.success_rate.estimate if judged.success_rate else np.nan)
    return found[0], found[1]


def shared_layouts(name: str) -> int:
    """Return how many of 300 training levels have the same layout as one of the first test levels."""
    environment = make_environment(name)

    def layout(split: Split, level: int) -> str:
        environment.reset(seed=level_seed(split, level))
        return str(environment.get_wrapper_attr("layout"))

    tested = {layout("test", level) for level in range(KEPT_APART)}
    return sum(layout("train", level) in tested for level in range(300))


def measured(count: int, seed: int, settings: Mapping[str, int]) -> dict[str, float]:
    """Return success rates by name: on the levels of the training, and on those of the test."""
    with tempfile.TemporaryDirectory() as folder:
        found = scores(Path(folder), count, seed, *settings.values())
    return dict(zip(("training levels", "test levels"), found, strict=True))


def main() -> None:
    """Print a table of success by number of training levels, and the rank correlation of the number with the test success."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--layouts", action="store_true", help="only count layouts of MiniGrid that both splits have")
    add_archive_option(parser, "levels")
    given = parser.parse_args()
    if given.layouts:
        for name in ("DoorKey-6x6", "SimpleCrossingS9N1", "KeyCorridorS3R3"):
            print(f"{name}: {shared_layouts(f'minigrid/MiniGrid-{name}-v0')} of 300 levels")
        return
    print("| levels | success on them | success on the test's levels | gap |\n|---|---|---|---|", flush=True)
    settings = {"episodes": given.episodes, "updates": given.updates, "tests": given.tests}
    results = Results("levels", given.archive, settings)
    counts, means = [*(count for count in COUNTS if count < given.episodes), given.episodes], []
    for count in counts:
        found = []
        for seed in range(given.seeds):
            figures = results.measured(f"{count} levels", seed, partial(measured, count, seed, settings))
            found.append((figures["training levels"], figures["test levels"]))
        train, test = np.array(found).T
        means.append(test.mean())
        rows = (", ".join(f"{value:.0%}" for value in each) for each in (train, test))
        print(f"| {count} | {' | '.join(rows)} | {np.mean(train - test):+.0%} |", flush=True)
    print(f"rank correlation of levels and success on the test's: {spearmanr(counts, means).statistic:.2f}")


if __name__ == "__main__":
    main()
