"""Criticised spans on a walled grid: rewards at their place, the same summed over the episode, and the same a few steps later.

python -m robo_papers.text2grad.study --seeds 4
"""

from __future__ import annotations

import argparse

import numpy as np

from robo_bench.walled_grid import FAR, SIZE, played
from robo_papers.text2grad.spans import SpanFeedback, span_rewards

EPISODES, UPDATES, WEIGHT, SHIFT = 64, 100, 2.0, 5


def criticised(cells: list[int], random: np.random.Generator) -> list[SpanFeedback]:
    """Return up to two good and two poor steps of an episode: the distance to the goal fell, or it did not."""
    change = np.diff(FAR.ravel()[cells])
    spans = []
    for is_good, steps in ((True, np.flatnonzero(change < 0)), (False, np.flatnonzero(change >= 0))):
        for step in random.permutation(steps)[:2].tolist():
            spans.append(SpanFeedback(step, step, is_good))
    return spans


def learned(kind: str, seed: int) -> float:
    """Train a policy with policy gradients, and return the share of successful episodes of its last update."""
    random, logits, successes = np.random.default_rng(seed), np.zeros((SIZE * SIZE, 4)), list[float]()
    for _ in range(UPDATES):
        weights = np.exp(logits - logits.max(1, keepdims=True))
        policy = weights / weights.sum(1, keepdims=True)
        gradient, reached, rows = np.zeros_like(logits), 0, []
        for _ in range(EPISODES):
            cells, actions, success = played(policy, random)
            reached += success
            given, _ = span_rewards(np.arange(len(cells), dtype=np.float64), criticised(cells, random))
            if kind == "later":
                given = np.concatenate([np.zeros(SHIFT), given])[: len(actions)]
            credit = WEIGHT * (given if kind in ("spans", "later") else np.full(len(actions), given.sum() * (kind == "summed")))
            rows.append((cells[:-1], actions, credit + float(success)))
        mean = np.mean(np.concatenate([credit for _, _, credit in rows]))
        for seen, done, credit in rows:
            for cell, action, worth in zip(seen, done, credit - (0.0 if kind in ("spans", "later") else mean), strict=True):
                gradient[cell] += worth * (np.eye(4)[action] - policy[cell])
        logits += 0.5 * gradient / EPISODES
        successes.append(reached / EPISODES)
    return float(np.mean(successes[-10:]))


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    print("| rewards | success of each seed over the last ten updates |\n|---|---|")
    names = {"outcome": "the outcome alone", "spans": "spans at their place", "summed": "the same summed over the episode"}
    names["later"] = f"the same {SHIFT} steps later"
    for kind, name in names.items():
        print(f"| {name} | {', '.join(f'{learned(kind, seed):.2f}' for seed in range(given.seeds))} |", flush=True)


if __name__ == "__main__":
    main()
