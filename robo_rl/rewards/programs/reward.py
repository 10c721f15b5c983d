"""A reward program as a reward, for datasets and for a policy while it acts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from typing_extensions import override

from robo_rl.errors import require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.runner import ProgramRunner, UsedProgram, UsesPrograms
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class ProgramReward(StepReward, UsesPrograms):
    """Reward of each step computed by a reward program, which runs in a confined process."""

    name: ClassVar[str] = "program"
    remedy: ClassVar[str] = "robo-rl reward check PROGRAM shows divisions by zero and the like"
    path: str
    """Path of the program's .py file."""
    every: int = 256
    """Steps per call while a policy acts, 1 or more; does not influence the rewards."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the program's process and of its rewards."""

    def __post_init__(self) -> None:
        require_allowed(self, {"every": (self.every >= 1, "1 or more")})

    @cached_property
    def runner(self) -> ProgramRunner:
        """The program with its worker process."""
        return ProgramRunner(self.path, self.limits)

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of program and limits; comments and the path do not count."""
        limits = json.dumps(asdict(self.limits), sort_keys=True)
        return self.name, hash_of(self.runner.program.hash.encode(), limits.encode())

    def require(self, place: Place) -> None:
        """Raise InvalidProgram if the environment lacks a column that the program reads."""
        self._view(place)

    @override
    def require_recorded(self, spec: EnvironmentSpec) -> None:
        self.programs(Place(spec))  # raises for missing columns and other frames, which an episode does not state

    @override
    def entries(self, place: Place) -> Sequence[str]:
        return self._view(place).entries

    @override
    def programs(self, place: Place) -> Sequence[UsedProgram]:
        return (UsedProgram(self.runner, self._view(place), is_reward=True),)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the program's total and terms for K steps.

        A step without a finite reward has no label. Raises ProgramFailed.
        """
        found = self.runner.run(self._view(place).batch_of(steps.before, steps.actions, steps.after))
        return replace(found, terms={name: np.where(found.valid, values, np.nan) for name, values in found.terms.items()})

    def _view(self, place: Place) -> EnvAbstraction:
        return self.runner.view(place.view, place.name)
