"""A lock of ten digits, paid at its end alone: episodes until it opens, by the sampler of the hints.

python -m robo_papers.curricula.study --seeds 5
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_app.experiments.results import Results, add_archive_option
from robo_papers.curricula.samplers import LearnabilitySampler
from robo_rl.environments.task_samplers import SamplerRule, TaskSampler, sampler_of

DIGITS, SYMBOLS, GROUP, RATE, MOST = 10, 5, 8, 0.5, 16_000
SOLVED = 0.9


class TheTaskAlone(TaskSampler):
    """Sampler for the study without a curriculum: always the last task."""

    @override
    def choose(self, generator: np.random.Generator) -> int:
        return self.count - 1


class Misfiled(LearnabilitySampler):
    """Sampler for a control condition: outcomes are counted for the task at the same distance from the other end."""

    @override
    def report(self, task: int, *, success: bool, score: float) -> None:
        super().report(self.count - 1 - task, success=success, score=score)


def ruled(name: str, **changes: Any) -> Callable[[], TaskSampler]:
    """Return a function that makes a task sampler of the lock, by the name of the sampler and changed settings."""
    return lambda: sampler_of(DIGITS, SamplerRule(**{"sampler": name, "uniform_share": 0.1, **changes}))


KINDS: dict[str, Callable[[], TaskSampler]] = {
    "none": lambda: TheTaskAlone(DIGITS, SamplerRule(uniform_share=0.0)),
    "`uniform`": ruled("uniform"),
    "`frontier`": ruled("frontier", uniform_share=0.0),
    "`logistic`": ruled("logistic"),
    "`learnability`": ruled("learnability"),
    "`replay`": ruled("replay"),
    "control: `learnability`, outcomes filed under other tasks": lambda: Misfiled(DIGITS, SamplerRule(uniform_share=0.1)),
    "control: `logistic` that forgets nothing": ruled("logistic", settings={"memory": 0}),
}


def opened(sampler: TaskSampler, seed: int) -> tuple[int, int] | None:
    """Train on the lock; return episodes and steps until it opens in nine of ten tries from its beginning.

    The student is REINFORCE with a table of logits; groups of episodes of one task, whose mean is the baseline. None if the
    lock never opens.
    """
    random = np.random.default_rng(seed)
    logits, code, steps = np.zeros((DIGITS, SYMBOLS)), random.integers(SYMBOLS, size=DIGITS), 0
    for episode in range(0, MOST, GROUP):
        policy = softmax(logits)
        if np.prod(policy[np.arange(DIGITS), code]) >= SOLVED:
            return episode, steps
        task = sampler.sample(random)
        first = DIGITS - 1 - task  # digits that the hint has entered
        tries = np.array([[random.choice(SYMBOLS, p=policy[digit]) for digit in range(first, DIGITS)] for _ in range(GROUP)])
        right = np.cumprod(tries == code[first:], 1)
        outcomes = right[:, -1].astype(np.float64)
        taken = np.minimum(right.sum(1) + 1, DIGITS - first)  # a wrong digit ends the episode
        steps += int(taken.sum())
        gradient = np.zeros_like(logits)
        for each, length, advantage in zip(tries, taken, outcomes - outcomes.mean(), strict=True):
            for digit, symbol in enumerate(each[:length], first):
                gradient[digit] += advantage * (np.eye(SYMBOLS)[symbol] - policy[digit])
        logits += RATE * gradient
        for outcome in outcomes:
            sampler.report(task, success=bool(outcome), score=float(outcome))
    return None


def softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the softmax (N, K) of logits (N, K) along the last axis."""
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))


def figures(made: Callable[[], TaskSampler], seed: int) -> dict[str, float]:
    """Return episodes and steps until the lock opens, by name; the largest possible numbers if it never does."""
    return dict(zip(("episodes", "steps"), opened(made(), seed) or (MOST, MOST * DIGITS), strict=True))


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    add_archive_option(parser, "curricula-lock")
    given = parser.parse_args()
    seeds, results = range(given.seeds), Results("curricula-lock", given.archive, {"most": MOST, "digits": DIGITS})
    print("| sampler | episodes, median | of each seed | steps, median |\n|---|---|---|---|")
    for name, made in KINDS.items():
        found = [results.measured(name, seed, partial(figures, made, seed)) for seed in seeds]
        episodes = [int(each["episodes"]) for each in found]
        shown = ", ".join(f"{each:,}" if each < MOST else "never" for each in episodes)
        middle, steps = int(np.median(episodes)), int(np.median([each["steps"] for each in found]))
        row = ("never", "") if middle >= MOST else (f"{middle:,}", f"{steps:,}")
        print(f"| {name} | {row[0]} | {shown} | {row[1]} |", flush=True)


if __name__ == "__main__":
    main()
