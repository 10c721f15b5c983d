"""Conservative exploration on tabular MDPs: episodes whose exact value is below what the baseline guarantees.

python -m robo_papers.stepmix.study --episodes 4000 --seeds 5
python -m robo_papers.stepmix.study --continuous --seeds 3      a point among hazards with SAC
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch

from robo_app.experiments.results import Results, add_archive_option
from robo_papers.stepmix.learner import StepMixConfig
from robo_papers.stepmix.stepmix_sac import StepMixSACConfig, StepMixTraining
from robo_papers.stepmix.tabular import TabularTraining
from robo_policies.learners.sac import SACConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.evaluation.statistics import Interval, stratified_bootstrap
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.training.off_policy import online_training

ALPHA = 0.2
METHODS: dict[str, StepMixConfig] = {
    "StepMix": StepMixConfig(ALPHA),
    "EpsMix": StepMixConfig(ALPHA, mixture="eps"),
    "UCB alone": StepMixConfig(1.0),
    "StepMix that trusts estimates": StepMixConfig(ALPHA, trusts_estimates=True),
    "StepMix with bounds of no width": StepMixConfig(ALPHA, bonus_scale=0.0),
}


POINT, BASELINE_EPISODES = "hazards/Point-v0", 50
SMALL: dict[str, Any] = {
    "network": {"hidden": (64, 64)},
    "batch_size": 128,
    "lr": 1e-3,
    "discount": 0.98,
    "replay": {"learning_starts": 500},
}
CONTINUOUS: dict[str, StepMixSACConfig | SACConfig] = {
    "stepmix-sac": updated(StepMixSACConfig(), SMALL, alpha=ALPHA, candidates=4, worst_return=-10.0),
    "stepmix-sac, alpha 0.5": updated(StepMixSACConfig(), SMALL, alpha=0.5, candidates=4, worst_return=-10.0),
    "SAC alone": updated(SACConfig(), SMALL),
}


class Returns:
    """Observer that keeps the return of each episode."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_episode(self, *_: Any, episode_return: float, **__: Any) -> None:
        """Store the return of the episode."""
        self.values.append(episode_return)

    def on_metrics(self, *_: Any) -> None:
        """Ignore the metrics."""

    on_step = on_metrics


class ExactValues:
    """Observer that keeps the exact value of what each episode played."""

    def __init__(self, simulation: Any) -> None:
        self.values: list[float] = []
        self._simulation = simulation

    def on_episode(self, *_: Any, **__: Any) -> None:
        """Ignore the episode; its value is computed after the step."""

    on_metrics = on_episode

    def on_step(self, step: int, training: Any) -> None:
        """Store the exact value of what the ended episode played."""
        self.values.append(training.policy.mixture.value(self._simulation.value))


def train(task: str, config: StepMixConfig, episodes: int, seed: int) -> tuple[TabularTraining, list[float], float]:
    """Train StepMix on a tabular task.

    Returns:
        The finished training, the exact value of the policy of each episode, and the value of the baseline.
    """
    given: dict[str, Any] = {"mdp_seed": seed} if "Random" in task else {}
    made: list[gymnasium.Env[Any, Any]] = [make_environment(task, **given)]
    simulation: Any = made[0].get_wrapper_attr("simulation")
    training = config.training(made.pop, steps=episodes * simulation.horizon, seed=seed)
    observer = ExactValues(simulation)
    training.run(observer)
    return training, observer.values, simulation.value(training.baseline)


def rows(results: Results, task: str, episodes: int, seeds: int) -> dict[str, dict[str, Interval]]:
    """Return a table row for each method: violations, mean value, and episodes of the baseline, with intervals over seeds."""
    found = {}
    for name, config in METHODS.items():
        settings = {"episodes": episodes, "config": config}
        runs = [
            results.measured(name, seed, partial(figures, task, config, episodes, seed), on=task, **settings)
            for seed in range(seeds)
        ]
        found[name] = {key: stratified_bootstrap([[run[key] for run in runs]], np.mean) for key in runs[0]}
    return found


def figures(task: str, config: StepMixConfig, episodes: int, seed: int) -> dict[str, float]:
    """Train a tabular learner on a task, and return the figures of its episodes by name."""
    training, values, baseline = train(task, config, episodes, seed)
    return {
        "violations": float(sum(value < (1.0 - ALPHA) * baseline - 1e-9 for value in values)),
        "mean value": float(np.mean(values)),
        "value at the end": values[-1],
        "baseline episodes": float(training.baseline_episodes),
    }


def continuous(results: Results, seeds: int, steps: int = 15_000) -> None:
    """Train SAC and StepMix-SAC on a point among hazards, and print their returns for one seed after the other."""
    environment = make_environment(POINT)
    script = environment.get_wrapper_attr("scripted_policy")(0)
    baseline = evaluate(script, environment, BASELINE_EPISODES).mean_return.estimate
    bound = (1.0 - ALPHA) * baseline
    print(f"{POINT}, {steps} steps, the baseline returns {baseline:.3g}, the guarantee with alpha {ALPHA} is {bound:.3g}")
    for name, config in CONTINUOUS.items():
        for seed in range(seeds):
            learn = partial(returned, environment, config, steps, seed, bound)
            found = results.measured(name, seed, learn, on=POINT, steps=steps, config=config)
            print(f"  {name:24}", seed, *(f"{key} {value:.3g}," for key, value in found.items()), flush=True)


def returned(
    environment: gymnasium.Env[Any, Any], config: SACConfig | StepMixSACConfig, steps: int, seed: int, bound: float
) -> dict[str, float]:
    """Train SAC or StepMix-SAC, and return figures of the returns of its training episodes.

    Args:
        environment: Environment of the training.
        config: Settings of the learner.
        steps: Length of the training in environment steps.
        seed: Seed of the training.
        bound: Guaranteed mean return, below which a return is counted.
    """
    observer, learner = Returns(), config.build(specification(environment), seed)
    if isinstance(config, StepMixSACConfig):
        StepMixTraining(environment, config, steps=steps, seed=seed).run(observer)
    else:
        online_training(environment, learner, config.sampling, steps=steps, seed=seed).run(observer)
    returns = np.array(observer.values)
    return {
        "mean": float(returns.mean()),
        "lowest of 100": float(np.convolve(returns, np.full(100, 0.01), "valid").min()),
        "last 100": float(returns[-100:].mean()),
        "share below": float((returns < bound).mean()),
    }


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--continuous", action="store_true", help="a point among hazards instead of tables")
    add_archive_option(parser, "stepmix")
    arguments = parser.parse_args()
    results = Results("stepmix", arguments.archive, {})
    if arguments.continuous:
        torch.set_num_threads(1)
        continuous(results, arguments.seeds)
        return
    for task in ("tabular/Trap-v0", "tabular/Random-v0"):
        print(f"{task}, {arguments.episodes} episodes, seeds 0 to {arguments.seeds - 1}, mean with 95 % interval over seeds")
        for name, figures in rows(results, task, arguments.episodes, arguments.seeds).items():
            print(f"  {name:32}", "  ".join(f"{key} {interval:.4g}" for key, interval in figures.items()))


if __name__ == "__main__":
    main()
