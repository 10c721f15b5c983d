"""A Python function of your own as a reward: same input as reward programs, but in this process and without a sandbox."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.code_names import object_named
from robo_rl.entry_points import refused_if_it_fails
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.programs.output_checks import Limits, OutputChecks
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores

ALLOWED = "numbers (N,) for N steps, or (numbers, {term: numbers}); docs/rewards/program-rewards.md"


@dataclass(frozen=True)
class FunctionReward(StepReward):
    """Reward from a function `reward(batch)` of your own, which reads the same columns as a reward program."""

    name: ClassVar[str] = "function"
    remedy: ClassVar[str] = "look for divisions by zero and the like in the function"
    function: str
    """Name of the function, "package.module:function"."""
    every: int = 256
    """Steps per call while a policy acts; does not influence the rewards."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the rewards' size and of missing ones; limits of time and memory have no effect, as there is no process."""

    @cached_property
    def call(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function, imported; raises InvalidSetting or UnknownName if that fails."""
        found: Callable[[Mapping[str, Any]], Any]
        found = object_named(self.function, "reward", allowed="package.module:function")
        return found

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the function's name and source."""
        try:
            source = inspect.getsource(self.call)
        except (OSError, TypeError):  # typed into an interpreter, or an object with __call__
            source = ""
        return self.name, hash_of(self.function.encode(), source.encode())

    def require(self, place: Place) -> None:
        """Raise InvalidSetting unless the function works on two steps of zeros."""
        rows = {array.name: np.zeros((2, *array.shape)) for array in place.spec.observation.arrays}
        discrete = place.spec.action.mode == "discrete"
        actions = np.zeros(2 if discrete else (2, place.spec.action.size))
        with np.errstate(all="ignore"):
            self._values(place.view.batch_of(rows, actions, rows), 2)

    def entries(self, place: Place) -> Sequence[str]:
        """Return the names of all observation entries, including pictures."""
        return [array.name for array in place.spec.observation.arrays]

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return rewards and terms of K steps.

        A step without a finite reward has no label. Raises ProgramFailed, InvalidSetting.
        """
        total, terms = self._values(place.view.batch_of(steps.before, steps.actions, steps.after), len(steps))
        checks = place.memory.setdefault("checks", {"rows": 0, "invalid_rows": 0})
        output = OutputChecks(tuple(terms), self.limits, **checks)
        found = output.accept(np.stack([total, *terms.values()]))
        place.memory["checks"] = {"rows": output.rows, "invalid_rows": output.invalid_rows}
        return found

    def _values(
        self, batch: Mapping[str, Any], rows: int
    ) -> tuple[npt.NDArray[np.float64], dict[str, npt.NDArray[np.float64]]]:
        """Return the total and the terms of the function, each (rows,)."""
        fix = f"it is called with a mapping of columns: {', '.join(batch)}"
        with refused_if_it_fails(f"The reward {self.function} does not work.", allowed=ALLOWED, fix=fix):
            found = self.call(batch)
            total, terms = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
            values = {str(name): np.array(value, np.float64) for name, value in {"": total, **terms}.items()}
        if wrong := {name: value.shape for name, value in values.items() if value.shape != (rows,)}:
            raise InvalidSetting(
                f"The reward {self.function} returned no reward for each step.",
                got="; ".join(f"{name or 'total'} of shape {list(shape)}" for name, shape in wrong.items()),
                allowed=f"[{rows}] for {rows} steps",
                fix="compute over rows: the first axis of every column is the step",
            )
        return values.pop(""), values
