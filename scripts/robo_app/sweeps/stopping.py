"""Rule that stops a trial early if an interval over seeds shows that it is behind the best.

A trial is judged at a step if two or more of its seeds were evaluated there. Its mean over seeds has an interval for the
randomness of training (`statistics.pooled_intervals`). The trial is stopped if the upper end of its interval lies below the
lower end of another trial's interval. By the union bound all intervals of a sweep are right with probability 1 - `risk`, so
the best trial of a step is stopped with probability `risk` at most.

Successive elimination: Even-Dar, Mannor and Mansour 2006, "Action elimination and stopping conditions for the multi-armed
bandit and reinforcement learning problems". Races of models: Maron and Moore 1994.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import Interval, pooled_intervals, rate_error

FEWEST = 2
"""Smallest number of seeds with which a trial is judged, because one seed does not show how much seeds differ."""


class Score(NamedTuple):
    """Result of one evaluation of one seed of a trial."""

    value: float
    """Score of an evaluation: success rate, or mean return if the environment declares no success."""
    error: float
    """Standard error of the value over the episodes of the evaluation."""
    is_rate: bool
    """True if the value is a success rate."""


Course = Mapping[int, Mapping[int, Score]]
"""Scores of a trial: step -> seed -> score."""


class Verdict(NamedTuple):
    """Reason to stop a trial of a sweep: the interval of another trial lies above its own."""

    step: int
    interval: Interval
    """Confidence interval of the stopped trial's score."""
    better: int
    """Number of the trial that is better: its interval lies above that of the stopped trial."""
    better_interval: Interval

    def __str__(self) -> str:
        form = ".0%" if self.interval.low >= 0.0 and self.better_interval.high <= 1.0 else ".4g"
        return f"step {self.step}: {self.interval:{form}} is below trial {self.better}, {self.better_interval:{form}}"


@dataclass(frozen=True)
class Stopping:
    """Rule that stops trials, for a sweep with given numbers of trials, seeds and evaluations."""

    risk: float
    """Largest probability that the best trial of a step is stopped, for the whole sweep; with 0 no trial is stopped."""
    trials: int
    seeds: int
    steps: int
    """Steps of a training."""
    every: int
    """Steps between evaluations; 0 for none."""
    grace: float
    """Share of the steps, from the beginning, in which no trial is stopped."""

    @property
    def places(self) -> list[int]:
        """Steps at which trials are judged."""
        if not self.every or not self.risk or self.seeds < FEWEST:
            return []
        return [step for step in range(self.every, self.steps, self.every) if step >= self.grace * self.steps]

    @property
    def why_never(self) -> str:
        """Reason why no trial can be stopped early; "" if one can."""
        reasons = {
            "evaluation.every is 0": not self.every,
            "--risk is 0": not self.risk,
            f"a trial needs {FEWEST} seeds or more": self.seeds < FEWEST,
            f"no evaluation comes between step {self.grace * self.steps:.0f} (--grace) and the last one, {self.steps}, with "
            f"evaluation.every {self.every}": not self.places,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def confidence(self) -> float:
        """Confidence of one interval, such that each of its ends is wrong with probability risk / number of looks."""
        looks = self.trials * len(self.places) * (self.seeds - FEWEST + 1)
        return 1.0 - 2.0 * self.risk / max(looks, 1)

    def verdict(self, trial: int, courses: Mapping[int, Course]) -> Verdict | None:
        """Return the reason to stop a trial, judged at its newest step with enough seeds; None to go on.

        courses: number of a trial -> its scores.
        """
        steps = [step for step in self.places if len(courses[trial].get(step, ())) >= FEWEST]
        if not steps:
            return None
        found = self.intervals(steps[-1], courses)
        other, best = max(found.items(), key=lambda item: _known(item[1].low))
        return Verdict(steps[-1], found[trial], other, best) if found[trial].high < best.low else None

    def intervals(self, step: int, courses: Mapping[int, Course]) -> dict[int, Interval]:
        """Return the interval of each trial that has enough seeds at a step."""
        scores = {trial: [*course[step].values()] for trial, course in courses.items() if len(course.get(step, ())) >= FEWEST}
        groups = [[score.value for score in each] for each in scores.values()]
        errors = [float(np.sqrt(np.mean([score.error**2 for score in each]))) for each in scores.values()]
        found = dict(zip(scores, pooled_intervals(groups, errors, confidence=self.confidence), strict=True))
        return {
            trial: each.within(0.0, 1.0) if all(s.is_rate for s in scores[trial]) else each for trial, each in found.items()
        }


def score(evaluation: Evaluation) -> Score:
    """Return the success rate of an evaluation, or its mean return if an episode declares no success."""
    successes, returns = evaluation.successes, np.asarray(evaluation.returns, np.float64)
    if all(success is not None for success in successes):
        return Score(
            float(np.mean([bool(each) for each in successes])), rate_error(sum(map(bool, successes)), len(successes)), True
        )
    error = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else 0.0
    return Score(float(returns.mean()), error, False)


def _known(bound: float) -> float:
    return -np.inf if np.isnan(bound) else bound
