"""Candidates of a search for a reward program: a model's replies with their programs, and the outcome of training with each."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.writing.candidate import Candidate
from robo_rl.runs.run import write_text

FILE = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """Outcome of training with a reward program: success of the policy, and the course of the program's terms."""

    score: float | None = None
    """Share of episodes that end in declared success, on reset seeds neither trained on nor used for `successes`; None if
    there is no policy to judge."""
    steps: tuple[int, ...] = ()
    """Training steps at which the policy was evaluated."""
    successes: tuple[float, ...] = ()
    """Success rate of the evaluation at each of `steps`."""
    terms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Name of a term, or "total" -> its mean per step in the course of the training."""
    failure: str = ""
    """Cause if there is no policy, in words for a language model."""
    folder: str = ""
    """Folder of the run with videos and policy, relative to that of all trainings."""

    @property
    def merit(self) -> tuple[float, float]:
        """Sort key of candidates: the score, then the mean success during training."""
        during = math.fsum(self.successes) / len(self.successes) if self.successes else 0.0
        return (-math.inf if self.score is None else self.score, during)

    def save(self, folder: Path) -> None:
        """Write the outcome durably to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the outcome saved in a folder, or None."""
        path = folder / FILE
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        found |= {name: tuple(found[name]) for name in ("steps", "successes")}
        return cls(**(found | {"terms": {name: tuple(values) for name, values in found["terms"].items()}}))


class Trainer(Protocol):
    """Interface of what trains a policy from scratch with a reward program."""

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Train a policy with this program and seed, and return the outcome; a failed training is an outcome with `failure`.

        The same arguments give the same outcome.
        """


class KeptTrainer:
    """Trainer that keeps the outcome of each program and seed in a folder, and repeats none."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self._trainer, self._folder = trainer, folder

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Return the kept outcome of this program and seed; if there is none, train and keep it."""
        folder = self._folder / training_name(program, seed)
        if (found := Outcome.read(folder)) is not None:
            return found
        outcome = self._trainer.train(program, seed)
        outcome.save(folder)
        return outcome

    def has(self, program: RewardProgram, seed: int) -> bool:
        """Return True if the training with this program and seed is finished."""
        return (self._folder / training_name(program, seed) / FILE).exists()


def training_name(program: RewardProgram, seed: int) -> str:
    """Return the name of the folder of a training; equal programs with one seed share it."""
    return f"{program.hash[:16]}-{seed}"


@dataclass(frozen=True)
class TrainedCandidate(Candidate):
    """Reply of a model with its reward program, and the outcome of training with the program."""

    outcome: Outcome | None = None
    """Outcome of training with the program; None before the training."""

    @property
    def is_scored(self) -> bool:
        """True if a policy was trained with the program and evaluated."""
        return self.outcome is not None and self.outcome.score is not None

    @property
    def has_succeeded(self) -> bool:
        """True if its policy succeeded at least once in the selection episodes."""
        return self.merit[0] > 0

    @property
    def merit(self) -> tuple[float, float]:
        """Sort key of candidates; lowest if nothing was evaluated."""
        return (Outcome() if self.outcome is None else self.outcome).merit

    @classmethod
    def of(cls, candidate: Candidate, outcome: Outcome | None = None) -> Self:
        """Add the outcome of its training to a candidate; a failed training becomes the status."""
        found = cls(**vars(candidate), outcome=outcome)
        failure = "" if outcome is None else outcome.failure
        return replace(found, status="training", reason=failure) if failure else found

    def facts(self) -> Mapping[str, Any]:
        """Return candidate and outcome as plain values, for the record of a round."""
        facts: dict[str, Any] = {"round": self.round, "index": self.index, "status": self.status, "reason": self.reason}
        facts |= {"repairs": self.repairs, "program": None if self.program is None else self.program.hash}
        return facts | ({} if self.outcome is None else {"score": self.outcome.score, "training": self.outcome.folder})


def best_of(candidates: list[TrainedCandidate]) -> TrainedCandidate | None:
    """Return the candidate with the greatest merit, the earlier of equal ones; None if none was evaluated."""
    scored = [each for each in candidates if each.is_scored]
    return max(scored, key=lambda each: (each.merit, -each.round, -each.index)) if scored else None


def commonest_failure(candidates: Iterable[TrainedCandidate]) -> tuple[TrainedCandidate, int] | None:
    """Return the first candidate with the commonest kind of error, and the number of candidates with this kind."""
    failed = [each for each in candidates if each.status not in ("ok", "budget")]
    if not failed:
        return None
    status, share = Counter(each.status for each in failed).most_common(1)[0]
    return next(each for each in failed if each.status == status), share
