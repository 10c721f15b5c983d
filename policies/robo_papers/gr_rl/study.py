"""GR-RL on the arm's pick: demonstrations with injected detours, the precision of the filter, and the gain of cloning.

python -m robo_papers.gr_rl.study --out detours --seeds 3

Resumable: finished parts are not made again. The detours are known to the measurement alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import robo_rl
from robo_app.experiments.results import Results, add_archive_option
from robo_app.training.assembly import scripted_expert
from robo_bench.finished import finished
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import label_sets
from robo_datasets.recorder import record_episode
from robo_papers.gr_rl.critic import lost_share
from robo_papers.gr_rl.reward import ProgressReward
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import Policy
from robo_rl.runs.run import Run
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import Array

ENVIRONMENT = "robo/ArmPick-v0"
ARGUMENTS: dict[str, Any] = {"action_repeat": 3, "max_steps": 60}
EPISODES, CLEAN, SEED = 200, 40, 1_000
SHORTEST, LONGEST = 10, 30
"""Shortest and longest detour [actions]: 1.5 to 4.5 s."""
FACTS = "detours.json"


class DetouringPolicy:
    """Expert that in some episodes makes a detour: it stands still for about 3 s, or wanders off with open fingers."""

    def __init__(self, expert: Policy, seed: int, share: float) -> None:
        self.environment_spec: EnvironmentSpec = expert.environment_spec
        self._expert, self._random = expert, np.random.default_rng([seed, 1])
        self._is_wrong = bool(self._random.random() < share)
        self._start, self._kind = int(self._random.integers(2, 12)), str(self._random.choice(["still", "wander"]))
        self._stop = self._start + int(self._random.integers(SHORTEST, LONGEST + 1))
        self._motion = np.zeros(3)
        self.wrong: list[bool] = []

    def reset(self) -> None:
        """Begin an episode of the expert, without a detour so far."""
        self._expert.reset()
        self.wrong = []

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the expert's action, or a wrong one during the detour."""
        step = len(self.wrong)
        is_wrong = self._is_wrong and self._start <= step < self._stop
        self.wrong.append(is_wrong)
        if not is_wrong:
            return self._expert.act(observation, deterministic=deterministic)
        if self._kind == "wander":
            self._motion = 0.85 * self._motion + self._random.normal(0.0, 0.3, 3)
        return np.array([*np.clip(self._motion, -1.0, 1.0), 0.0, 1.0], np.float32)


def recorded(folder: Path, episodes: int, share: float, first_seed: int) -> Dataset:
    """Return the dataset in a folder; record it first if it is not there.

    Args:
        folder: Folder of the dataset.
        episodes: Number of episodes.
        share: Share of the episodes with a detour.
        first_seed: Seed of the first episode.
    """
    if (folder / FACTS).exists():
        return Dataset(folder)
    wrong: dict[str, list[bool]] = {}
    with closing(make_environment(ENVIRONMENT, **ARGUMENTS)) as environment:
        expert_for = scripted_expert(environment, ENVIRONMENT)
        card = {"environment": ENVIRONMENT, "arguments": ARGUMENTS, "policy": "detours"}
        dataset = Dataset.create(folder, specification(environment), card)
        with dataset.writer() as writer:
            for seed in range(first_seed, first_seed + episodes):
                policy = DetouringPolicy(expert_for(seed, noise=0.05), seed, share)
                entry = record_episode(environment, policy, writer, seed=seed, source="detours")
                wrong[entry.identity] = policy.wrong
    (folder / FACTS).write_text(json.dumps(wrong))
    return dataset


def lost_by_step(dataset: Dataset, reward: ProgressReward) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]]:
    """Yield for each episode the estimated share of lost steps (T,), and the truth (T,): True during a detour."""
    truth = json.loads((dataset.path / FACTS).read_text())
    discount = reward.discount
    for entry in dataset.entries():
        progress = reward.progress(dataset.read(entry))
        yield lost_share(progress, discount, reward.window), np.array(truth[entry.identity], np.bool_)


def found(dataset: Dataset, reward: ProgressReward) -> dict[str, float]:
    """Measure the filter: its precision and recall on injected steps, and the share of steps that it drops."""
    pairs = [*lost_by_step(dataset, reward)]
    lost, wrong = np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])
    dropped = lost > reward.lost
    right = float((dropped & wrong).sum())
    order = np.argsort(np.argsort(lost))
    count = float(wrong.sum())
    area = (order[wrong].sum() - count * (count - 1) / 2) / max(count * (len(wrong) - count), 1.0)
    return {
        "precision": right / max(float(dropped.sum()), 1.0),
        "recall": right / max(count, 1.0),
        "dropped": float(dropped.mean()),
        "area": float(area),
    }


def trained(out: Path, name: str, recipe: str, seed: int, steps: int, **more: Any) -> Run:
    """Train a recipe in a named folder, unless its run is there already; return the run."""
    if (run := finished(out / "runs", name, seed)) is not None:
        return run
    evaluation = {"every": 0, "episodes": 100, "videos": 0}
    settings = {"name": name, "evaluation": evaluation, "checkpoint_every": steps, **more}
    return robo_rl.train(recipe, seed=seed, steps=steps, out=out / "runs", **settings)


METHODS = ("all", "kept", "kept, mirrored", "steered")


def run_of(out: Path, dataset: Dataset, method: str, seed: int, given: argparse.Namespace) -> Run:
    """Return the run of a method and seed, trained if it is not there."""
    name = f"{given.learner}-{method.replace(', ', '-')}"
    if method == "steered":
        base = run_of(out, dataset, "kept, mirrored", seed, given)
        environment = {"name": ENVIRONMENT, "arguments": ARGUMENTS, "wrappers": [{"name": "steered", "base": str(base.path)}]}
        return trained(out, name, "arm-pick-sac", seed, given.steered_steps, environment=environment)
    folder = out / "both" if method == "kept, mirrored" else dataset.path
    labels = "" if method == "all" else "kept"
    return trained(out, name, f"offline-{given.learner}", seed, given.steps, dataset=folder, labels=labels)


def evaluated(out: Path, dataset: Dataset, method: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Evaluate a method; return success and number of steps of each episode."""
    evaluation = run_of(out, dataset, method, seed, given).evaluation
    assert evaluation is not None
    return {"success": [float(bool(success)) for success in evaluation.successes], "steps": evaluation.lengths}


def main() -> None:
    """Record demonstrations, fit the critic, measure the filter, train all methods, print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--steered-steps", type=int, default=10_000)
    parser.add_argument("--learner", default="flow-bc")
    parser.add_argument("--share", type=float, default=0.3, help="of the demonstrations that have a detour")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    add_archive_option(parser, "gr-rl")
    given = parser.parse_args()
    out: Path = given.out
    dataset, clean = recorded(out / "pick", EPISODES, given.share, SEED), recorded(out / "clean", CLEAN, 0.0, SEED + 10_000)
    model = out / "progress"
    if not model.exists():
        dispatch(["reward", "fit", "progress", "--dataset", str(dataset.path), "--out", str(model)])
    reward = ProgressReward(str(model))
    print("| episodes | precision | recall | steps dropped | area under the curve |\n|---|---|---|---|---|")
    for name, each in ((f"{len(dataset)}, {given.share:.0%} with a detour", dataset), (f"{len(clean)} clean ones", clean)):
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in found(each, reward).values()) + " |")
    if "kept" not in label_sets(dataset):
        words = ["--reward", "progress", "--reward.settings.folder", str(model), "--name", "kept"]
        dispatch(["label", str(dataset.path), *words])
    if not (out / "both").exists():
        dispatch(["data", "mirror", str(dataset.path), "--out", str(out / "both")])
    print("\n| learned from | success of each seed | steps to it |\n|---|---|---|")
    settings = {"steps": given.steps, "steered_steps": given.steered_steps, "share": given.share}
    results = Results("gr-rl", given.archive, settings)
    for method in given.methods:
        rows = [
            results.measured(f"{given.learner}, {method}", seed, partial(evaluated, out, dataset, method, seed, given))
            for seed in range(given.seeds)
        ]
        shares = [np.mean(row["success"]) for row in rows]
        times = [n for row in rows for n, s in zip(row["steps"], row["success"], strict=True) if s]
        written = ", ".join(f"{share:.0%}" for share in shares)
        median = np.median(times) if times else np.nan
        print(f"| {method} | {written} | {median:.0f} |", flush=True)


if __name__ == "__main__":
    main()
