"""The course of training in words: what a model is shown of a program's terms, and where it may know, of success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robo_rl.rewards.search.outcome import Outcome

SHOWN = 10
"""Values of each quantity, evenly spaced over training (Eureka)."""
SUCCESS = "success"


def trace(values: Sequence[float]) -> str:
    """Returns up to ten evenly spaced values, and the extremes and mean of all."""
    if not values:
        return "no value"
    every = np.asarray(values, np.float64)
    places = np.unique(np.linspace(0, len(every) - 1, min(SHOWN, len(every))).round().astype(int))
    course = ", ".join(f"{value:.3g}" for value in every[places])
    return f"{course}; max {every.max():.3g}, mean {every.mean():.3g}, min {every.min():.3g}"


def traces(terms: Mapping[str, Sequence[float]]) -> str:
    """Returns a line for each term, the total last."""
    names = sorted(terms, key=lambda name: (name == "total", name))
    return "\n".join(f"{name}: {trace(terms[name])}" for name in names) or "nothing was logged"


def reflection(outcome: Outcome) -> str:
    """Returns the lines of an outcome: each term per step, the total, and the share of episodes that end in success."""
    judged = "unknown" if outcome.score is None else f"{outcome.score:.3g}"
    course = trace(outcome.successes)
    return f"{traces(outcome.terms)}\n{SUCCESS}: {course}\n{SUCCESS} of the final policy in new situations: {judged}"
