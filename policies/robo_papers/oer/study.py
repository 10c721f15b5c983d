"""Three tasks of a reaching arm, one after the other, from recorded data: score of each after all of them, and forgetting.

python -m robo_papers.oer.study --seeds 3 --archive docs/benchmarks/oer.json
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from typing_extensions import override

from robo_app.experiments.results import Results, add_archive_option
from robo_bench.reacher import ReacherExpert
from robo_bench.trainings import Silent
from robo_papers.oer.learner import ContinualTraining, OERConfig
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.statistics import student_interval
from robo_rl.protocols.components import Policy
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, ObservationSpec, specification
from robo_rl.types import Array, Episode

FIGURES = ("after all, mean of tasks", "first task after it", "first task after all", "backward transfer")
GAINS = (1.0, -1.0, 0.4)
"""Factor by which actions are multiplied, for each task."""
UPDATES, EPISODES, JUDGED = 3000, 400, 40
"""Per task: updates, recorded episodes of 50 steps, evaluated episodes."""
SHARED: dict[str, Any] = {"network": {"hidden": (128, 128)}, "batch_size": 128, "lr": 1e-3}
METHODS: dict[str, OERConfig] = {
    "OER": updated(OERConfig(), SHARED, selection="model"),
    "dual, random steps": updated(OERConfig(), SHARED, selection="random"),
    "dual, highest rewards": updated(OERConfig(), SHARED, selection="reward"),
    "dual, largest errors": updated(OERConfig(), SHARED, selection="surprise"),
    "dual, spread out": updated(OERConfig(), SHARED, selection="coverage"),
    "one policy, random steps": updated(OERConfig(), SHARED, selection="random", dual=False),
    "one policy, EWC": updated(OERConfig(), SHARED, capacity=0, dual=False, ewc=100.0),
    "one policy, nothing kept": updated(OERConfig(), SHARED, capacity=0, dual=False),
}


class Motors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper of Reacher whose motors have another gain in each task; the task is observed, one-hot."""

    def __init__(self, task: int) -> None:
        super().__init__(make_environment("gymnasium/Reacher-v5"))
        self._task, inner = task, specification(self.env)
        entry = ArraySpec("task", (len(GAINS),), low=0.0, high=1.0, meaning="one-hot")
        self.environment_spec = replace(inner, observation=ObservationSpec((*inner.observation.arrays, entry)))
        self.observation_space = self.environment_spec.observation.space

    def _with_task(self, observation: Any) -> dict[str, Array]:
        return {**observation, "task": np.eye(len(GAINS), dtype=np.float32)[self._task]}

    @override
    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return self._with_task(observation), info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        moved = (np.asarray(action) * np.float32(GAINS[self._task])).astype(np.float32)
        observation, reward, terminated, truncated, info = self.env.step(moved)
        return self._with_task(observation), reward, terminated, truncated, info


class Controller(ReacherExpert):
    """Scripted expert who knows the gain of each task."""

    @override
    def gain(self, observation: Any) -> float:
        return GAINS[int(observation["task"].argmax())]


def recorded(task: int) -> list[Episode]:
    """Return recorded episodes of a task, played by the controller; half of them with much noise."""
    environment = Motors(task)
    policies = [Controller(specification(environment), noise, task) for noise in (0.1, 0.5)]
    return [rollout(environment, policies[number % 2], seed=10_000 * task + number) for number in range(EPISODES)]


def mean_return(policy: Policy, task: int) -> float:
    """Return the mean return of a policy in a task, over the study's evaluation episodes."""
    environment = Motors(task)
    found = [rollout(environment, policy, seed=500_000 + number, deterministic=True) for number in range(JUDGED)]
    return float(np.mean([each.undiscounted_return for each in found]))


class Judging(Silent):
    """Observer that evaluates the policy in all tasks at the end of each task."""

    def __init__(self, each: int) -> None:
        super().__init__()
        self._each = each
        self.returns = list[list[float]]()

    def on_step(self, step: int, training: Any) -> None:
        """Evaluate the policy on the tasks after the last update of a task."""
        if step % self._each == 0:
            self.returns.append([mean_return(training.policy, task) for task in range(len(GAINS))])


def after_each(config: OERConfig, episodes: list[list[Episode]], seed: int) -> list[list[float]]:
    """Train on the tasks one after the other; return mean returns (tasks learnt, tasks), evaluated after each task."""
    counts, joined = tuple(len(each) for each in episodes), [episode for each in episodes for episode in each]
    chosen, judging = replace(config, tasks=counts), Judging(UPDATES)
    training = ContinualTraining(Motors(0), chosen, steps=UPDATES * len(GAINS), seed=seed, demonstrations=joined)
    training.run(judging)
    return judging.returns


def together(episodes: list[list[Episode]], seed: int) -> list[list[float]]:
    """Train TD3+BC on the episodes of all tasks at once, and return its mean return on each task: an upper bound."""
    spec = specification(Motors(0))
    learner = updated(TD3BCConfig(), SHARED).build(spec, seed)
    replay = RecordedReplay.of(spec, [episode for each in episodes for episode in each], seed)
    for _ in range(UPDATES * len(GAINS)):
        learner.update(replay.sample(SHARED["batch_size"]))
    return [[mean_return(learner.policy, task) for task in range(len(GAINS))]]


def figures(config: OERConfig | None, episodes: list[list[Episode]], seed: int, ends: tuple[Array, Array]) -> dict[str, float]:
    """Train on the tasks one after the other, or on all at once if `config` is None, and return its figures by name.

    Args:
        config: Settings of the learner, or None for the upper bound `together`.
        episodes: Recorded episodes of each task.
        seed: Seed of the training.
        ends: Mean returns of the random policy and of the controller, (tasks,) each; they are scores 0 and 100.
    """
    returns = together(episodes, seed) if config is None else after_each(config, episodes, seed)
    scores = 100.0 * (np.array(returns) - ends[0]) / (ends[1] - ends[0])
    tasks = len(GAINS)
    lost = [scores[-1, task] - scores[task, task] for task in range(tasks - 1)] if len(scores) == tasks else [0.0]
    found = [scores[-1].mean(), scores[0, 0], scores[-1, 0], np.mean(lost)]
    return {name: float(value) for name, value in zip(FIGURES, found, strict=True)}


def main() -> None:
    """Train all that the folder lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="methods")
    add_archive_option(parser, "oer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = Results("oer", arguments.archive, {"updates": UPDATES, "episodes": EPISODES, "judged": JUDGED, "gains": GAINS})
    episodes = [recorded(task) for task in range(len(GAINS))]
    random = RandomPolicy(specification(Motors(0)), 0)
    low = np.array([mean_return(random, task) for task in range(len(GAINS))])
    high = np.array([mean_return(Controller(specification(Motors(0)), 0.0, 0), task) for task in range(len(GAINS))])
    print(f"random {low.round(1).tolist()}, controller {high.round(1).tolist()}; scores are 0 and 100 for them", flush=True)
    print(f"| method | {' | '.join(FIGURES)} |\n|---|---|---|---|---|")
    for name, config in {**METHODS, "all tasks at once": None}.items():
        if arguments.only and name not in arguments.only:
            continue
        rows = []
        for seed in range(arguments.seeds):
            found = results.measured(
                name, seed, partial(figures, config, episodes, seed, (low, high)), config=config or TD3BCConfig()
            )
            rows.append([found[name] for name in FIGURES])
        intervals = map(student_interval, zip(*rows, strict=True))
        cells = [f"{each.estimate:.0f} [{each.low:.0f}, {each.high:.0f}]" for each in intervals]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
