"""Potential-based shaping: shows the way and leaves the best policies as they are (Ng, Harada & Russell 1999, ICML)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.place import Place
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.programs.gates import Limits
from robo_rl.rewards.programs.judging import ProgramJudge
from robo_rl.rewards.shaping.stage import Stage
from robo_rl.rewards.steps import Steps
from robo_rl.types import Array, Labels


@dataclass(frozen=True)
class Potential(Stage):
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
        program, limits = self.judge.program, asdict(self.limits)
        return {"program": program.hash, "weight": self.weight, "discount": self.discount, "limits": limits}

    @cached_property
    def judge(self) -> ProgramJudge:
        """The program and its worker."""
        return ProgramJudge(self.program, self.limits)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for a program that reads more than the state, and for another discount than the learner's."""
        place.discount_for("potential", self.discount)
        states = self._states(place)
        if beyond := [each for each in self.judge.program.columns if each in place.view.columns and each not in states.columns]:
            raise InvalidSetting(
                f"A potential follows from the state alone, and {self.program} reads more.",
                got=", ".join(beyond),
                allowed=", ".join(states.columns),
                fix="use it as a source of rewards, or write a program of the state",
            )
        self._view(place)

    def entries(self, place: Place) -> Sequence[str]:
        """Return those that the program reads."""
        return self._view(place).entries

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return shaped rewards: each step brings the state before it, so that no reset of an environment can come between."""
        view, count = self._view(place), len(steps)
        both: Mapping[str, Array] = {name: np.concatenate((steps.before[name], steps.after[name])) for name in view.entries}
        found = self.judge.judge(view.batch_of({}, np.concatenate((steps.actions, steps.actions)), both))
        phi = self.weight * np.where(found.valid, found.total, 0.0)
        after = np.where(steps.terminated, 0.0, phi[count:])
        valid = labels.valid & found.valid[:count] & (found.valid[count:] | steps.terminated)
        return Labels(labels.values + place.discount_for("potential", self.discount) * after - phi[:count], valid)

    def _states(self, place: Place) -> EnvAbstraction:
        return place.view.only({name for name, column in place.view.columns.items() if column.moment == "after"})

    def _view(self, place: Place) -> EnvAbstraction:
        return self.judge.view(self._states(place), place.name)
