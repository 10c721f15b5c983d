"""Potential-based shaping: shows the way and leaves the best policies as they are (Ng, Harada & Russell 1999, ICML)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.programs.gates import Limits
from robo_rl.rewards.programs.judging import ProgramJudge
from robo_rl.rewards.shaping.stage import Known, Place, RunningStage, Stateless, Values
from robo_rl.rewards.steps import Steps
from robo_rl.types import Array


@dataclass(frozen=True)
class Potential:
    """Adds weight * (discount * phi(after) - phi(before)), phi(after) being 0 where the task ended (terminated, not truncated).

    The discounted sum over an episode that ends is then -phi(first), whatever the policy did; at a time limit it is
    discount^T phi(last) - phi(first), and the learner's bootstrap makes up for it.
    """

    program: str
    """Path of a reward program whose total is phi. It reads the state alone: neither `action` nor a column `previous_...`."""
    weight: float = 1.0
    """Of phi."""
    discount: float | None = None
    """The learner's; needed only where rewards of recorded episodes are made, before there is a learner."""
    limits: Limits = field(default_factory=Limits)
    """Of the program's process, and of what counts as a potential."""

    def __post_init__(self) -> None:
        discount = 1.0 if self.discount is None else self.discount
        require_allowed(
            self,
            {
                "weight": (bool(np.isfinite(self.weight)), "a finite number"),
                "discount": (0 < discount <= 1, "above 0, up to 1, or none"),
            },
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Hash of the program, weight, discount."""
        program, limits = ProgramJudge(self.program).program, asdict(self.limits)
        return {"program": program.hash, "weight": self.weight, "discount": self.discount, "limits": limits}

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work."""
        discount = place.discount_for("potential", self.discount)
        judge = ProgramJudge(self.program, self.limits)
        states = place.view.only({name for name, column in place.view.columns.items() if column.moment == "after"})
        beyond = [name for name in judge.program.columns if name in place.view.columns and name not in states.columns]
        if beyond:
            raise InvalidSetting(
                f"A potential follows from the state alone, and {self.program} reads more.",
                got=", ".join(beyond),
                allowed=", ".join(states.columns),
                fix="use it as a source of rewards, or write a program of the state",
            )
        return _Running(judge, judge.view(states, place.name), self.weight, discount)


class _Running(Stateless):
    """Remembers nothing: each step brings the state before it, so that no reset of an environment can come between."""

    def __init__(self, judge: ProgramJudge, view: EnvAbstraction, weight: float, discount: float) -> None:
        self._judge, self._view, self._weight, self._discount = judge, view, weight, discount

    @property
    def entries(self) -> tuple[str, ...]:
        return self._view.entries

    def apply(self, steps: Steps, values: Values, known: Known) -> tuple[Values, Known]:
        if not len(steps):
            return values, known
        both: Mapping[str, Array] = {
            name: np.concatenate((steps.before[name], steps.after[name])) for name in self._view.entries
        }
        found = self._judge.judge(self._view.batch_of({}, np.concatenate((steps.actions, steps.actions)), both))
        count = len(steps)
        phi = self._weight * np.where(found.valid, found.total, 0.0)
        after = np.where(steps.terminated, 0.0, phi[count:])
        is_known = found.valid[:count] & (found.valid[count:] | steps.terminated)
        return values + self._discount * after - phi[:count], known & is_known
