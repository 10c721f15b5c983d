"""LaRe: the decoder sees factors that a language model has written as a program, instead of raw states.

Qu et al. 2025, "Latent reward: LLM-empowered credit assignment in episodic reinforcement learning" (AAAI, arXiv:2412.11120).
The program runs in the sandbox of reward programs; its terms are the factors, its total is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from robo_rl.rewards.decomposition.learned import Floats
from robo_rl.rewards.decomposition.rewards import DecomposedReward, DrawnSteps
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.place import Place
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.programs.gates import Limits
from robo_rl.rewards.programs.runner import ProgramRunner, UsedProgram
from robo_rl.stopwatch import timed
from robo_rl.types import Array


class ProgramFactors:
    """The terms of a program as the inputs of a decoder, by name: in which order it returns them changes nothing."""

    def __init__(self, runner: ProgramRunner, view: EnvAbstraction) -> None:
        self._runner, self._view = runner, view
        self._names = sorted(runner.program.terms)
        self.size = len(self._names)

    @property
    def entries(self) -> Sequence[str]:
        """Those that the program reads."""
        return self._view.entries

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Names of the factors, and a hash of what computes them."""
        return {"inputs": ", ".join(self._names), "program": self._runner.program.hash}

    def of(self, observations: Mapping[str, Array], actions: Array) -> Floats:
        """Returns (T, D); a row for which the program has no finite factors is NaN. Raises ProgramFailed.

        Computed once for each step, when its episode has ended.
        """
        before, after = ({name: values[part] for name, values in observations.items()} for part in (_BEFORE, _AFTER))
        found = timed("score", lambda: self._runner.run(self._view.batch_of(before, actions, after)))
        factors = np.stack([found.terms[name] for name in self._names], axis=1)
        with np.errstate(over="ignore"):
            return np.where(found.valid[:, None], factors, np.nan).astype(np.float32)


_BEFORE, _AFTER = slice(None, -1), slice(1, None)


@dataclass(frozen=True)
class LatentReward(DrawnSteps, DecomposedReward):
    """LaRe: rewards of factors that a language model wrote (`robo-rl reward latent`), learned from returns (Qu et al. 2025)."""

    name: ClassVar[str] = "lare"
    path: str
    """Of the .py file of the program whose terms are the factors."""
    limits: Limits = field(default_factory=Limits)
    """Of the program's process."""

    @cached_property
    def runner(self) -> ProgramRunner:
        """The program and its worker."""
        return ProgramRunner(self.path, self.limits)

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of program and settings: comments and the place of the file do not count."""
        settings = {name: value for name, value in asdict(self).items() if name != "path"}
        return self.name, hash_of(self.runner.program.hash.encode(), json.dumps(settings, sort_keys=True).encode())

    def inputs(self, place: Place) -> ProgramFactors:
        """Return the factors; raise InvalidProgram if the environment lacks a column."""
        return ProgramFactors(self.runner, self._view(place))

    def programs(self, place: Place) -> Sequence[UsedProgram]:
        """Return the one program."""
        return (UsedProgram(self.runner, self._view(place), is_reward=False),)

    def _view(self, place: Place) -> EnvAbstraction:
        return self.runner.view(place.view, place.name)
