"""Conservative exploration on tabular MDPs: episodes whose exact value is below what the baseline guarantees.

python -m robo_bench.conservative --episodes 4000 --seeds 5
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from robo_policies.learners.epsmix import EpsMixConfig
from robo_policies.learners.stepmix import StepMixConfig
from robo_policies.learners.tabular import ConservativeConfig, TabularTraining
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.statistics import Interval, stratified_bootstrap
from robo_sims.tabular import TabularSimulation

ALPHA = 0.2
METHODS: dict[str, ConservativeConfig] = {
    "StepMix": StepMixConfig(ALPHA),
    "EpsMix": EpsMixConfig(ALPHA),
    "UCB alone": StepMixConfig(1.0),
    "StepMix that trusts estimates": StepMixConfig(ALPHA, trusts_estimates=True),
    "StepMix with bounds of no width": StepMixConfig(ALPHA, bonus_scale=0.0),
}


class ExactValues:
    """Observer that keeps the exact value of what each episode played."""

    def __init__(self, simulation: TabularSimulation) -> None:
        self.values: list[float] = []
        self._simulation = simulation

    def on_episode(self, *_: Any, **__: Any) -> None:
        """Keep nothing."""

    on_metrics = on_episode

    def on_step(self, step: int, training: Any) -> None:
        """Keep the value."""
        self.values.append(training.policy.mixture.value(self._simulation.value))


def train(task: str, config: ConservativeConfig, episodes: int, seed: int) -> tuple[TabularTraining, list[float], float]:
    """Return the training, the exact value of each episode, and the baseline's."""
    made: list[gymnasium.Env[Any, Any]] = [make_environment(task, **({"mdp_seed": seed} if "Random" in task else {}))]
    simulation: TabularSimulation = made[0].get_wrapper_attr("simulation")
    training = config.training(made.pop, steps=episodes * simulation.horizon, seed=seed)
    observer = ExactValues(simulation)
    training.run(observer)
    return training, observer.values, simulation.value(training.baseline)


def rows(task: str, episodes: int, seeds: int) -> dict[str, dict[str, Interval]]:
    """Return by method: violations, mean value and episodes of the baseline, with intervals over seeds."""
    found = {}
    for name, config in METHODS.items():
        runs = [train(task, config, episodes, seed) for seed in range(seeds)]
        violations = [float(sum(value < (1.0 - ALPHA) * baseline - 1e-9 for value in values)) for _, values, baseline in runs]
        figures: dict[str, list[float]] = {
            "violations": violations,
            "mean value": [float(np.mean(values)) for _, values, _ in runs],
            "value at the end": [values[-1] for _, values, _ in runs],
            "baseline episodes": [training.baseline_episodes for training, *_ in runs],
        }
        found[name] = {key: stratified_bootstrap([each], np.mean) for key, each in figures.items()}
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    for task in ("tabular/Trap-v0", "tabular/Random-v0"):
        print(f"{task}, {arguments.episodes} episodes, seeds 0 to {arguments.seeds - 1}, mean with 95 % interval over seeds")
        for name, figures in rows(task, arguments.episodes, arguments.seeds).items():
            print(f"  {name:32}", "  ".join(f"{key} {interval:.4g}" for key, interval in figures.items()))


if __name__ == "__main__":
    main()
