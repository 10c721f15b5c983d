"""Verdicts on what a person may train with: findings of rules that are stated with their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from robo_rl.evaluation.figures import Figure

Grade = Literal["good", "middling", "bad", "not known", "note"]


@dataclass(frozen=True)
class Finding:
    """Finding of one rule."""

    rule: str
    """the rule, with its thresholds"""
    outcome: Grade
    text: str


@dataclass(frozen=True)
class Verdict:
    """Verdict on a reward or a world: train with it or not."""

    color: Literal["good", "middling", "bad", ""]
    headline: str
    findings: Sequence[Finding]

    @property
    def reasons(self) -> list[str]:
        """Reasons against it, the worst first, or for it if there are none; then remarks."""
        texts = {
            outcome: [each.text for each in self.findings if each.outcome == outcome]
            for outcome in ("bad", "not known", "middling", "note")
        }
        against = texts["bad"] or texts["middling"] + texts["not known"]
        return (against or [each.text for each in self.findings if each.outcome == "good"]) + texts["note"]


def graded(figure: Figure, good: float, useless: float) -> Grade:
    """Return the grade of a figure between a useless and a good value, its interval considered.

    "good" at or above `good` and above `useless`; "bad" if it may be useless and is clearly below `good`; "not known"
    if it may be either; "middling" in between.
    """
    if not figure.is_measured or (figure.low <= useless and figure.high >= good):
        return "not known"
    if figure.low <= useless:
        return "bad"
    return "good" if figure.interval.estimate >= good else "middling"
