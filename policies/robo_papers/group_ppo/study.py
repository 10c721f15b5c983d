"""A grid with walls, paid at its goal alone: success of PPO from groups of episodes, by its advantages.

python -m robo_papers.group_ppo.study --seeds 4
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_app.experiments.results import Results, add_archive_option
from robo_bench.trainings import Successes
from robo_papers.group_ppo.learner import GroupPPOConfig
from robo_papers.group_ppo.self_imitation import Kept, SelfImitation
from robo_policies.learners.episodic import ClippedLearner
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Array, Episode

SIZE, LONGEST, UPDATES = 6, 24, 250
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
WALLS = frozenset({(1, 2), (2, 2), (3, 2), (3, 4), (4, 4), (5, 4)})
SETTINGS: dict[str, Any] = {
    "network": {"hidden": (), "normalization_rows": 0},
    "advantages": {"critic_lr": 5e-2},
    **{"lr": 2e-2, "episodes": 8, "discount": 0.95, "epochs": 2},
}
KINDS: dict[str, dict[str, Any]] = {
    "critic": {"advantages": {"kind": "critic"}},
    "anchor (GiGPO)": {"advantages": {"kind": "anchor"}},
    "graph (SALT)": {"advantages": {"kind": "graph"}},
    "group (GRPO)": {"advantages": {"kind": "group"}},
    "group, self-imitation 0.1": {"advantages": {"kind": "group"}, "self_imitation": 0.1},
    "control: self-imitation of the newest episodes": {"advantages": {"kind": "group"}, "self_imitation": 0.1, "newest": True},
    "control: graph, permuted within each episode": {"advantages": {"kind": "graph"}, "shuffles": True},
}


class Walled(gymnasium.Env[Any, Any]):
    """Grid environment of the study: two walls, each with a gap, between the start in one corner and the goal in the other."""

    environment_spec = EnvironmentSpec(
        "bench/Walled",
        ObservationSpec((ArraySpec("place", (SIZE * SIZE,), low=0.0, high=1.0, meaning="one-hot"),)),
        ActionSpec(("up", "right", "down", "left"), mode="discrete"),
        max_steps=LONGEST,
    )
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._steps = (0, 0), 0
        return self._seen(), {}

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = MOVES[int(action)]
        there = self._place[0] + move[0], self._place[1] + move[1]
        if all(0 <= place < SIZE for place in there) and there not in WALLS:
            self._place = there
        self._steps += 1
        is_there = self._place == (SIZE - 1, SIZE - 1)
        return self._seen(), float(is_there), is_there, self._steps >= LONGEST, {"success": is_there}

    def _seen(self) -> dict[str, Array]:
        return {"place": np.eye(SIZE * SIZE, dtype=np.float32)[self._place[0] * SIZE + self._place[1]]}


class Newest(SelfImitation):
    """Control condition: the newest episodes are kept and imitated, good or not."""

    @override
    def remember(self, episodes: Sequence[Episode]) -> None:
        super().remember(episodes)
        self.kept = [Kept(0.0, {"place": each.observations["place"][:-1]}, each.actions) for each in episodes]


class ImitatesNewest(GroupPPOConfig):
    """Settings of the control that imitates the newest episodes (`Newest`) instead of the best."""

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> ClippedLearner:
        learner = super().build(spec, seed)
        learner.terms = [Newest(learner.actor, self.self_imitation, self.kept_episodes)]
        return learner


def successes(seed: int, updates: int = UPDATES, **settings: Any) -> list[bool]:
    """Train a policy, and return for each training episode whether it succeeded."""
    kind = ImitatesNewest if settings.pop("newest", False) else GroupPPOConfig
    heard, config = Successes(), updated(kind(), SETTINGS, settings)
    config.training(Walled, steps=updates * config.episodes * LONGEST, seed=seed).run(heard)
    return heard.found[: updates * config.episodes]


def figures(seed: int, settings: Mapping[str, Any]) -> dict[str, float]:
    """Train a policy, and return its share of successful episodes over the whole training and over the last 100."""
    found = successes(seed, **settings)
    return {"success": float(np.mean(found)), "success of the last 100": float(np.mean(found[-100:]))}


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rows", default="", help="only those whose name has this in it")
    add_archive_option(parser, "group-ppo")
    given = parser.parse_args()
    seeds, results = range(given.seeds), Results("group-ppo", given.archive, SETTINGS)
    print("| advantages | success over the training, mean | of each seed | over the last hundred episodes |\n|---|---|---|---|")
    for name, settings in ((name, settings) for name, settings in KINDS.items() if given.rows in name):
        runs = [results.measured(name, seed, partial(figures, seed, settings), settings=settings) for seed in seeds]
        means, last = ([float(np.mean(run[key])) for run in runs] for key in ("success", "success of the last 100"))
        shown = ", ".join(f"{mean:.2f}" for mean in means)
        print(f"| {name} | {np.mean(means):.2f} | {shown} | {', '.join(f'{value:.2f}' for value in last)} |", flush=True)


if __name__ == "__main__":
    main()
