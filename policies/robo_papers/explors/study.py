"""A chain whose far end pays 1, and whose beginning a little: the reward alone, a bonus, a learned reward, and both.

python -m robo_papers.explors.study --seeds 8
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_app.experiments.results import Results, add_archive_option
from robo_bench.trainings import Successes
from robo_papers.explors.learner import ExploRSConfig
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Array

PLACES, LONGEST, LITTLE, SLIPS, STEPS = 10, 20, 0.02, 0.1, 16_000
SETTINGS: dict[str, Any] = {"network": {"hidden": (), "normalization_rows": 0}, "lr": 3e-2, "episodes": 8}
"""Settings that all methods of the study share: a table of logits, since places are one-hot."""
KINDS: dict[str, dict[str, Any]] = {
    "the reward alone": {"bonus": 0.0, "reward_lr": 0.0},
    "and a bonus": {"reward_lr": 0.0},
    "and a learned reward": {"bonus": 0.0},
    "and both (ExploRS)": {},
}


class Chain(gymnasium.Env[Any, Any]):
    """Environment of the study: a chain whose left end pays a little, and whose far right end pays 1 and ends the episode.

    One step in ten slips.
    """

    environment_spec = EnvironmentSpec(
        "bench/Chain",
        ObservationSpec((ArraySpec("place", (PLACES,), low=0.0, high=1.0, meaning="one-hot"),)),
        ActionSpec(("left", "right"), mode="discrete"),
        max_steps=LONGEST,
    )
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self._steps = 0
        return self._seen(), {}

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        goes_left = int(action) == 0
        reward = LITTLE if goes_left and self._place == 0 else 0.0
        goes_left ^= bool(self.np_random.random() < SLIPS)
        self._place = max(0, self._place - 1) if goes_left else self._place + 1
        self._steps += 1
        is_there = self._place == PLACES - 1
        return self._seen(), 1.0 if is_there else reward, is_there, self._steps >= LONGEST, {"success": is_there}

    def _seen(self) -> dict[str, Array]:
        return {"place": np.eye(PLACES, dtype=np.float32)[self._place]}


def successes(seed: int, steps: int = STEPS, **settings: Any) -> list[bool]:
    """Train with these settings; return for each training episode whether it succeeded."""
    heard = Successes()
    updated(ExploRSConfig(), SETTINGS, settings).training(Chain, steps=steps, seed=seed).run(heard)
    return heard.found


def figures(seed: int, settings: Mapping[str, Any]) -> dict[str, float]:
    """Train a policy, and return its share of successful episodes over the whole training and over the last 100."""
    found = successes(seed, **settings)
    return {"success": float(np.mean(found)), "success of the last 100": float(np.mean(found[-100:]))}


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=8)
    add_archive_option(parser, "explors")
    given = parser.parse_args()
    seeds, results = range(given.seeds), Results("explors", given.archive, {**SETTINGS, "steps": STEPS})
    print("| learned from | success of each seed over the last hundred episodes | of all episodes, mean |\n|---|---|---|")
    for name, settings in KINDS.items():
        runs = [results.measured(name, seed, partial(figures, seed, settings), settings=settings) for seed in seeds]
        last = ", ".join(f"{run['success of the last 100']:.2f}" for run in runs)
        print(f"| {name} | {last} | {np.mean([run['success'] for run in runs]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
