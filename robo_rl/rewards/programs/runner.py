"""A reward program and the worker that runs it, as what gives steps their rewards."""

from __future__ import annotations

import atexit
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robo_rl.errors import InvalidProgram, InvalidSetting
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox
from robo_rl.rewards.step_rewards.abstraction import Columns, EnvAbstraction
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.types import Labels

WORKERS = 8
"""Worker processes that are kept waiting, one a program; the one that was not asked for longest goes first."""


@dataclass(frozen=True)
class ProgramRunner:
    """A program in a file, run in a worker process that starts when it is first asked."""

    path: str
    """Of the .py file."""
    limits: Limits = field(default_factory=Limits)
    """Of its process, and of what counts as a reward."""

    @cached_property
    def program(self) -> RewardProgram:
        """The program; raises InvalidProgram for one that breaks the grammar."""
        return RewardProgram.read(Path(self.path))

    def view(self, whole: EnvAbstraction, source: str) -> EnvAbstraction:
        """Returns the columns that the program reads of all there are; raises InvalidProgram for one that is not there.

        source: what an error calls that which lacks it.
        """
        if missing := [name for name in self.program.columns if name not in whole.columns]:
            raise InvalidProgram(
                "unknown column",
                f"The program {self.path} reads what {source} does not have.",
                got=", ".join(missing),
                allowed=", ".join(whole.columns),
                fix="use it where it was written for, or write another program",
            )
        return whole.only(self.program.columns)

    def run(self, columns: Columns) -> StepScores:
        """Returns what the program says of N steps, N may be 0; raises ProgramFailed."""
        rows = len(next(iter(columns.values()))) if columns else 0
        if not columns:
            raise InvalidSetting(f"The program {self.path} reads no column.", allowed="a reward that follows from something")
        if not rows:
            return StepScores(Labels.missing(0), {name: np.zeros(0) for name in self.program.terms})
        return _worker(self.program, self.limits).run(columns)


class UsedProgram(NamedTuple):
    """A program that a reward follows from."""

    runner: ProgramRunner
    view: EnvAbstraction
    """The columns that it reads."""
    is_reward: bool
    """True if its total is the reward itself, not a potential or a set of factors."""


class UsesPrograms(ABC):
    """A reward of steps that follows from programs."""

    @abstractmethod
    def programs(self, place: Place) -> Sequence[UsedProgram]:
        """Return the programs that the reward follows from."""


_workers: OrderedDict[tuple[str, Limits, int], Sandbox] = OrderedDict()


def _worker(program: RewardProgram, limits: Limits) -> Sandbox:
    """Returns the worker of a program, which goes on running: starting one costs as much as a million steps."""
    key = (program.hash, limits, os.getpid())  # a fork of this process must not talk to the worker of its parent
    if key not in _workers:
        while len(_workers) >= WORKERS:
            _workers.popitem(last=False)[1].close()
        _workers[key] = Sandbox(program, limits)
    _workers.move_to_end(key)
    return _workers[key]


@atexit.register
def end_workers() -> None:
    """Ends all worker processes; the next question starts its own."""
    while _workers:
        _workers.popitem()[1].close()
