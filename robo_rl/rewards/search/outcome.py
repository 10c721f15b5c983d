"""What came of training a policy with a reward program, and who trains."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.runs import write_text

FILE = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """How well a policy does the task, as the environment declares it, and what the program's terms did meanwhile."""

    score: float | None = None
    """Share of episodes that end in declared success, on reset seeds neither trained on nor used for `successes`; None where
    there is no policy to judge."""
    steps: tuple[int, ...] = ()
    """At which the policy was evaluated while it learnt."""
    successes: tuple[float, ...] = ()
    """Share of declared success at each of `steps`."""
    terms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Term, or "total" -> mean per step in the course of training."""
    failure: str = ""
    """Why there is no policy, in words fit to be shown to a language model."""
    folder: str = ""
    """Of the run, relative to the folder of all trainings; films and policy are there."""

    @property
    def merit(self) -> tuple[float, float]:
        """What candidates are chosen by: the score, and among equal ones the mean success while it learnt."""
        during = math.fsum(self.successes) / len(self.successes) if self.successes else 0.0
        return (-math.inf if self.score is None else self.score, during)

    def unscored(self) -> Outcome:
        """Returns what may be shown where the declared success must stay hidden: the terms alone."""
        return replace(self, score=None, steps=(), successes=())

    def save(self, folder: Path) -> None:
        """Writes it durably."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Returns what `save` wrote; None where there is nothing."""
        path = folder / FILE
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        found |= {name: tuple(found[name]) for name in ("steps", "successes")}
        return cls(**(found | {"terms": {name: tuple(values) for name, values in found["terms"].items()}}))


class Trainer(Protocol):
    """Trains a policy from scratch with a program for a reward."""

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Returns what came of it, with `failure` where the program or the training broke; the same for the same arguments."""


class KeptTrainer:
    """A trainer that trains nothing twice: outcomes are kept in a folder for each program and seed."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self._trainer, self._folder = trainer, folder

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Returns the kept outcome, or trains and keeps it."""
        folder = self._folder / training_name(program, seed)
        if (found := Outcome.read(folder)) is not None:
            return found
        outcome = self._trainer.train(program, seed)
        outcome.save(folder)
        return outcome

    def has(self, program: RewardProgram, seed: int) -> bool:
        """Whether that training is finished."""
        return (self._folder / training_name(program, seed) / FILE).exists()


def training_name(program: RewardProgram, seed: int) -> str:
    """Returns the name of the folder of a training: equal programs share it."""
    return f"{program.hash[:16]}-{seed}"
