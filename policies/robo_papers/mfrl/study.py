"""Plans of a quadrotor, learnt from both fidelities, from either alone, or from none: share of flights that succeed, and time.

python -m robo_papers.mfrl.study --out fidelities
python -m robo_papers.mfrl.study --out fidelities --classifiers
python -m robo_papers.mfrl.study --out fidelities --room

The second command trains no policy: it asks how many flights a model of feasibility needs, with and without the cheap check.
The third searches the fastest plan that flies, for four tasks, by hundreds of flights each: the room that there is to learn.

The rows `slowed` fly the least-snap plan, uniformly slower by a factor; their best is what no learning at all reaches.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from robo_app.experiments.results import Results, add_archive_option
from robo_bench.trainings import Silent
from robo_papers.mfrl.feasibility import Feasibility
from robo_papers.mfrl.learner import MFRLConfig
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
        """Do nothing: there is no memory of earlier steps."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the action (26,) of the least-snap plan, slowed by the factor."""
        return self._action


def judged(policy: Policy, episodes: int) -> dict[str, float]:
    """Evaluate a policy in flight: return share of feasible flights, mean return and duration, by name."""
    outcome = evaluate(policy, make_environment(TASK), episodes)
    return {
        "feasible": float(np.mean([bool(each) for each in outcome.successes])),
        "return": outcome.mean_return.estimate,
        "duration": float(np.nanmean(outcome.measured["duration_ratio"])) if any(outcome.successes) else float("nan"),
    }


def random_plans(count: int, seed: int) -> tuple[Array, Array, Array]:
    """Return features (N, 6) of plans around the limit, and their labels (N,) at the low and the high fidelity."""
    environment, random = make_environment(TASK), np.random.default_rng(seed)
    propose, size = environment.get_wrapper_attr("propose"), specification(environment).action.size
    features, low, high = list[Array](), list[bool](), list[bool]()
    for index in range(count):
        observation, _ = environment.reset(seed=1000 * seed + index)
        stretch = random.uniform(-0.1, 0.3) + 0.1 * random.normal(size=size // 2)
        action = np.clip(np.concatenate([stretch, 0.2 * random.normal(size=size // 2)]), -1.0, 1.0).astype(np.float32)
        plan = propose(observation, action)
        *_, info = environment.step(action)
        features.append(plan.features)
        low.append(plan.is_feasible_for_ideal_rotors())
        high.append(bool(info["success"]))
    return np.stack(features), np.array(low), np.array(high)


def classified(seed: int, flights: int, plans: tuple[Array, Array, Array]) -> dict[str, float]:
    """Return the accuracy on the second half of the plans: of the check itself, and of models with and without it."""
    features, low, high = plans
    half, random = len(features) // 2, np.random.default_rng(seed)
    order = random.permutation(half)
    found = {"check itself": float(np.mean(low[half:] == high[half:]))}
    for name in ("both", "high"):
        torch.manual_seed(seed)
        model = Feasibility(features[order[:128]], 0.02, uses_low=name == "both")
        if name == "both":
            model.add("low", features[order], low[order])
        model.add("high", features[order[:flights]], high[order[:flights]])
        model.fit(300, 256, random)
        found[name] = float(np.mean((model.probability("high", features[half:]) > 0.5) == high[half:]))
    return found


def room(seed: int, rounds: int = 14, plans: int = 20, best: int = 5) -> dict[str, float]:
    """Return durations over the reference: the least common factor that flies, and the fastest plan of a search in flight.

    Cross-entropy search (Rubinstein 1999): each round keeps the best plans, a failed one counts as 1.5 and more.
    """
    environment, random = make_environment(TASK), np.random.default_rng(seed)
    observation, _ = environment.reset(seed=50_000 + seed)
    action, count = specification(environment).action, int((observation["times"] > 0).sum())
    used = np.flatnonzero(np.tile(np.arange(action.size // 2) < count, 2))

    def flown(values: npt.NDArray[np.float64]) -> tuple[float, bool]:
        physical = np.zeros(action.size)
        physical[used] = values
        environment.reset(seed=50_000 + seed)
        *_, info = environment.step(np.clip(action.to_normalized(physical), -1.0, 1.0))
        times = observation["times"][:count]
        ratio = float((times * np.exp(physical[:count])).sum() / times.sum())
        return ratio, bool(info["success"])

    uniform = np.repeat([1.0, 0.0], count)
    factor = next(f for f in np.arange(1.0, 1.4, 0.01) if flown(np.log(f) * uniform)[1])
    mean, deviation, fastest = np.log(factor) * uniform, np.repeat([0.06, 0.3], count), float(factor)
    for _ in range(rounds):
        tried = mean + deviation * random.normal(size=(plans, len(used)))
        outcomes = [flown(values) for values in tried]
        fastest = min([fastest, *(ratio for ratio, flies in outcomes if flies)])
        elite = tried[np.argsort([ratio if flies else 1.5 + ratio for ratio, flies in outcomes])[:best]]
        mean, deviation = 0.3 * mean + 0.7 * elite.mean(0), 0.3 * deviation + 0.7 * elite.std(0) + 1e-3
    return {"common factor": float(factor), "fastest": fastest}


def print_classifiers(file: Path, seeds: Sequence[int]) -> None:
    """Print the accuracies; the plans' labels are kept in the file."""
    if not file.exists():
        plans = [array.tolist() for array in random_plans(600, 0)]
        write_durably(file, json.dumps(plans).encode())
    features, low, high = (np.asarray(each) for each in json.loads(file.read_text()))
    print(f"{len(high)} plans, {low.mean():.0%} pass the check, {high.mean():.0%} fly")
    for flights in (10, 20, 40, 80, 160):
        runs = [classified(seed, flights, (features, low, high)) for seed in seeds]
        figures = {key: stratified_bootstrap([[run[key] for run in runs]], np.mean) for key in runs[0]}
        print(f"{flights:4} flights", "  ".join(f"{key} {interval:.3f}" for key, interval in figures.items()), flush=True)


def trained(fidelities: Literal["both", "low", "high"], flights: int, seed: int, episodes: int) -> dict[str, float]:
    """Train a policy with `flights` flights, and return figures of `episodes` episodes in which it is evaluated."""
    training = MFRLConfig(fidelities=fidelities).training(partial(make_environment, TASK), steps=flights, seed=seed)
    training.run(Silent())
    return judged(training.policy, episodes)


def main() -> None:
    """Run the study of this module as a command: train policies that the folder lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--flights", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--classifiers", action="store_true", help="models of feasibility alone")
    parser.add_argument("--room", action="store_true", help="the fastest plans that fly, by search")
    parser.add_argument("--only", nargs="*", default=["both", "low", "high"])
    add_archive_option(parser, "mfrl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.classifiers:
        print_classifiers(arguments.out / "plans.json", arguments.seeds)
        return
    if arguments.room:
        for seed in range(4):
            print(f"task {seed}", "  ".join(f"{name} {ratio:.3f}" for name, ratio in room(seed).items()), flush=True)
        return
    make, results = partial(make_environment, TASK), Results("mfrl", arguments.archive, {"episodes": arguments.episodes})
    spec = specification(make())
    for factor in SLOWED:
        results.measured(f"slowed {factor:g}", 0, partial(judged, Slowed(spec, factor), arguments.episodes))
    for seed in arguments.seeds:
        for fidelities in arguments.only:
            train = partial(trained, fidelities, arguments.flights, seed, arguments.episodes)
            results.measured(fidelities, seed, train, flights=arguments.flights)
    print(results.page())


if __name__ == "__main__":
    main()
