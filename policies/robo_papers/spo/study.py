"""SPO in games of three arms: average and last policy of preferences in a circle, and of a winner under noise.

python -m robo_papers.spo.study --seeds 3
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_app.experiments.results import Results, add_archive_option
from robo_papers.spo.win_rates import WinRates
from robo_rl.rewards.preferences.preference_reward import BradleyTerryConfig, Pairs, fit

Floats = npt.NDArray[np.float64]
BATCH, OPPONENTS, LEARNING_RATE = 16, 16, 0.05
CIRCLE = np.array([[0.5, 0.0, 1.0], [1.0, 0.5, 0.0], [0.0, 1.0, 0.5]])
"""Probabilities P(row beats column) of rock, paper, scissors."""
WINNER = np.array([[0.5, 1.0, 1.0], [0.0, 0.5, 0.0], [0.0, 1.0, 0.5]])
"""Probabilities P(row beats column) of a game whose first arm beats both others."""


def played(
    game: Floats, seed: int, *, steps: int, queue: int = 64, coins: float = 0.0, opponents: int = OPPONENTS
) -> tuple[Floats, Floats]:
    """Return the average and the last policy (3,) of self-play by policy gradients; coins: share of answers by chance."""
    random, logits, total = np.random.default_rng(seed), np.zeros(len(game)), np.zeros(len(game))
    logits += random.normal(0.0, 0.1, len(game))

    def beats(one: int, other: int) -> float:
        return float(random.random() < 0.5) if random.random() < coins else float(game[one, other])

    wins = WinRates[int](beats, queue=queue, opponents=opponents, seed=seed)
    for _ in range(steps):
        policy = softmax(logits)
        total += policy
        arms = random.choice(len(game), BATCH, p=policy)
        worths = np.array([wins.worth(int(arm)) for arm in arms])
        for arm in arms.tolist():
            wins.push(arm)
        logits += LEARNING_RATE * (worths[:, None] * (np.eye(len(game))[arms] - policy)).mean(0) * len(game)
    return total / steps, softmax(logits)


def softmax(logits: Floats) -> Floats:
    """Return the softmax (3,) of logits (3,)."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def fitted_reward(game: Floats, seed: int, behaviour: Floats, pairs: int = 2000) -> Floats:
    """Return the reward (3,) that Bradley and Terry's model learns from pairs of a behaviour; mean 0, deviation 1."""
    random = np.random.default_rng(seed)
    first, second = random.choice(3, (2, pairs), p=behaviour)
    steps = np.eye(3, dtype=np.float32)
    labels = np.array([1.0 - game[one, other] for one, other in zip(first, second, strict=True)], np.float32)
    config = BradleyTerryConfig(hidden=(32,), seed=seed)
    reward = fit(Pairs(steps[first][:, None], steps[second][:, None], labels), steps, config).reward
    return np.asarray(reward.rewards(steps)[0], np.float64)


SKEWED = "circle, (0.6, 0.3, 0.1)"
"""Name of a row of the study: the game, and the behaviour from which its comparisons are."""


def policies(play: Callable[[int], tuple[Floats, Floats]], seed: int) -> dict[str, list[float]]:
    """Play a game, and return the average policy and the last one, by name."""
    average, last = play(seed)
    return {"average": average.tolist(), "last": last.tolist()}


def fitted(seed: int) -> dict[str, list[float]]:
    """Return Bradley and Terry's rewards of the three moves."""
    return {"reward": fitted_reward(CIRCLE, seed, np.array([0.6, 0.3, 0.1])).tolist()}


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6000)
    add_archive_option(parser, "spo")
    given = parser.parse_args()
    results = Results("spo", given.archive, {"steps": given.steps})
    torch.set_num_threads(1)
    rows: dict[str, Callable[[int], tuple[Floats, Floats]]] = {
        "circle": lambda seed: played(CIRCLE, seed, steps=given.steps),
        "circle, queue of 4,096": lambda seed: played(CIRCLE, seed, steps=given.steps, queue=4096),
        "one winner, 40 % coin flips": lambda seed: played(WINNER, seed, steps=given.steps, coins=0.4),
    }
    print("| game | seed | average policy | last policy |\n|---|---|---|---|")
    for name, play in rows.items():
        for seed in range(given.seeds):
            found = results.measured(name, seed, partial(policies, play, seed))
            print(f"| {name} | {seed} | {written(found['average'])} | {written(found['last'])} |")
    print("\n| game, behaviour | seed | Bradley and Terry's rewards |\n|---|---|---|")
    for seed in range(given.seeds):
        fit = partial(fitted, seed)
        print(f"| {SKEWED} | {seed} | {written(results.measured(SKEWED, seed, fit)['reward'])} |")


def written(values: Any) -> str:
    """Return numbers as text in brackets."""
    return "(" + ", ".join(f"{value:.2f}" for value in values) + ")"


if __name__ == "__main__":
    main()
