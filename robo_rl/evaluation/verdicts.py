"""Verdicts whether to train with a reward or world model, by rules that are reported with their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from robo_rl.evaluation.figures import Figure

Grade = Literal["good", "middling", "bad", "not known", "note"]


@dataclass(frozen=True)
class Finding:
    """Outcome of one rule of a verdict on a reward or world model, with the words that explain it."""

    rule: str
    """the rule in words, with its thresholds"""
    outcome: Grade
    text: str


@dataclass(frozen=True)
class Verdict:
    """Conclusion whether one should train with a reward or world model, with the findings that lead to it."""

    color: Literal["good", "middling", "bad", ""]
    headline: str
    findings: Sequence[Finding]

    @property
    def reasons(self) -> list[str]:
        """Explanations: findings against training with it, worst first, or for it if none is against; then remarks."""
        texts = {
            outcome: [each.text for each in self.findings if each.outcome == outcome]
            for outcome in ("bad", "not known", "middling", "note")
        }
        against = texts["bad"] or texts["middling"] + texts["not known"]
        return (against or [each.text for each in self.findings if each.outcome == "good"]) + texts["note"]


def graded(figure: Figure, good: float, useless: float) -> Grade:
    """Grade a measured figure by its interval, given a good and a useless value.

    - "good": the estimate is at or above `good`, the lower bound above `useless`
    - "bad": the lower bound is at or below `useless`, the upper bound below `good`
    - "not known": no data, or the interval contains both values
    - "middling": otherwise
    """
    if not figure.is_measured or (figure.low <= useless and figure.high >= good):
        return "not known"
    if figure.low <= useless:
        return "bad"
    return "good" if figure.interval.estimate >= good else "middling"
