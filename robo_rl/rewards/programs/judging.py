"""A reward program and the worker that runs it, as what gives steps their rewards."""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidProgram, InvalidSetting
from robo_rl.rewards.programs.abstraction import Columns, EnvAbstraction
from robo_rl.rewards.programs.gates import Limits
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox

WORKERS = 8
"""Worker processes that are kept waiting, one a program; the one that was not asked for longest goes first."""


@dataclass(frozen=True)
class Judged:
    """What a program says of N steps."""

    total: npt.NDArray[np.float64]
    """(N,)"""
    terms: Mapping[str, npt.NDArray[np.float64]]
    """name -> (N,)"""
    valid: npt.NDArray[np.bool_]
    """(N,) False where the program gave no usable number: missing is not zero."""


@dataclass(frozen=True)
class ProgramJudge:
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

    def judge(self, columns: Columns) -> Judged:
        """Returns what the program says of N steps, N may be 0; raises ProgramFailed."""
        rows = len(next(iter(columns.values()))) if columns else 0
        if not columns:
            raise InvalidSetting(f"The program {self.path} reads no column.", allowed="a reward that follows from something")
        if not rows:
            return Judged(np.zeros(0), {name: np.zeros(0) for name in self.program.terms}, np.zeros(0, np.bool_))
        found = _worker(self.program, self.limits).run(columns)
        return Judged(found.total, found.terms, found.valid)


class UsedProgram(NamedTuple):
    """A program that a reward follows from."""

    judge: ProgramJudge
    view: EnvAbstraction
    """The columns that it reads."""
    is_reward: bool
    """True if its total is the reward itself, not a potential or a set of factors."""


@runtime_checkable
class Programmed(Protocol):
    """A reward that follows from programs."""

    @property
    def programs(self) -> Sequence[UsedProgram]:
        """All of them; empty if there are none."""
        ...


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
