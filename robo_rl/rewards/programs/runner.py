"""A reward program together with the worker process that runs it."""

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
"""Largest number of worker processes, one per program; the least recently used one is ended first."""


@dataclass(frozen=True)
class ProgramRunner:
    """A reward program in a file, run in a worker process that starts at the first batch."""

    path: str
    """Path of the .py file."""
    limits: Limits = field(default_factory=Limits)
    """Limits of its process and its rewards."""

    @cached_property
    def program(self) -> RewardProgram:
        """The reward program, read from its file; raises InvalidProgram if it breaks the grammar."""
        return RewardProgram.read(Path(self.path))

    def view(self, whole: EnvAbstraction, source: str) -> EnvAbstraction:
        """Select the columns that the program reads; raises InvalidProgram if one is missing or in another frame.

        Args:
            whole: All columns.
            source: Name of the environment or episode, for the message.
        """
        if missing := [name for name in self.program.columns if name not in whole.columns]:
            raise InvalidProgram(
                "unknown column",
                f"The program {self.path} reads columns that {source} does not have.",
                got=", ".join(missing),
                allowed=", ".join(whole.columns),
                fix="use it in its own environment, or write another program",
            )
        require_frames(self.program, whole, self.path, source)
        return whole.only(self.program.columns)

    def run(self, columns: Columns) -> StepScores:
        """Compute the program's scores of N steps; N may be 0. Raises ProgramFailed.

        columns: name -> (N, ...).
        """
        rows = len(next(iter(columns.values()))) if columns else 0
        if not columns:
            raise InvalidSetting(f"The program {self.path} reads no column.", allowed="a reward that follows from something")
        if not rows:
            return StepScores(Labels.missing(0), {name: np.zeros(0) for name in self.program.terms})
        return _worker(self.program, self.limits).run(columns)


def require_frames(program: RewardProgram, whole: EnvAbstraction, path: object, source: str) -> None:
    """Raise InvalidProgram if a program would read columns in another frame than it was written for.

    Nothing is raised if no column has a frame, as for a single recorded episode.

    Args:
        program: The program.
        whole: All columns.
        path: Path of the program, for the message.
        source: Name of the environment or episode, for the message.
    """
    are_known = any(column.frame is not None for column in whole.columns.values())
    if wrong := program.misread(whole.moved, frames_are_known=are_known):
        raise InvalidProgram(
            "frame",
            f"The program {path} was written for other frames than those of {source}.",
            got=", ".join(f"{name} in the frame {whole.columns[name].frame}" for name in wrong),
            allowed="frames of a hand (relative_frame)" if not whole.moved else "the frame of the base, without relative_frame",
            fix="use it in its own environment, or write another; one of distances alone says `frames: any` in its docstring",
        )


class UsedProgram(NamedTuple):
    """Program on which a reward depends, and its role in the reward."""

    runner: ProgramRunner
    view: EnvAbstraction
    """Columns that the program reads, with their description."""
    is_reward: bool
    """True if the program's total is the reward itself, not a potential or a factor."""


class UsesPrograms(ABC):
    """Base class of rewards of steps that depend on reward programs."""

    @abstractmethod
    def programs(self, place: Place) -> Sequence[UsedProgram]:
        """Return the programs on which the reward depends."""


_workers: OrderedDict[tuple[str, Limits, int], Sandbox] = OrderedDict()


def _worker(program: RewardProgram, limits: Limits) -> Sandbox:
    """Return the worker of a program, which keeps running, because starting one takes as long as a million steps."""
    key = (program.hash, limits, os.getpid())  # a fork of this process must not talk to the worker of its parent
    if key not in _workers:
        while len(_workers) >= WORKERS:
            _workers.popitem(last=False)[1].close()
        _workers[key] = Sandbox(program, limits)
    _workers.move_to_end(key)
    return _workers[key]


@atexit.register
def end_workers() -> None:
    """End all worker processes; the next batch of a program starts a new one."""
    while _workers:
        _workers.popitem()[1].close()
