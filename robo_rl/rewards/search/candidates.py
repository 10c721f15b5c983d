"""Candidates of a search: replies with their programs, the outcome of training each, and rounds of them."""

from __future__ import annotations

import ast
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.runs.run import write_text

LEAST = 0.1
"""Mean distance below which a population counts as collapsed; programs that differ in one constant are about 0.02 apart."""


@dataclass(frozen=True)
class Diversity:
    """Of the programs of one round."""

    programs: int
    distinct: int
    """Number of different syntax trees."""
    distance: float
    """Mean over pairs: 0 the same, 1 nothing in common; nan below two programs."""

    @property
    def is_collapsed(self) -> bool:
        """True if the round tried little more than one idea."""
        return self.programs > 1 and (self.distinct == 1 or self.distance < LEAST)

    def __str__(self) -> str:
        apart = "" if np.isnan(self.distance) else f", mean distance {self.distance:.2f}"
        return f"{self.distinct} of {self.programs} programs are different{apart}"


def diversity(programs: Sequence[RewardProgram]) -> Diversity:
    """Return the share of the syntax trees of two programs that differs, in the mean over all pairs."""
    leaves = [_leaves(program.source) for program in programs]
    distances = [1 - SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in combinations(leaves, 2)]
    distance = float(np.mean(distances)) if distances else float("nan")
    return Diversity(len(programs), len({program.hash for program in programs}), distance)


def _leaves(source: str) -> list[str]:
    """Return the syntax tree in order: kinds of nodes, names and constants."""
    found = []
    for node in ast.walk(ast.parse(source)):
        word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
        found.append(f"{type(node).__name__} {word if isinstance(word, str | int | float) else ''}")
    return found


FILE = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """Results of a policy by the environment's own measure, and the course of the program's terms."""

    score: float | None = None
    """Share of episodes that end in declared success, on reset seeds neither trained on nor used for `successes`; None if
    there is no policy to judge."""
    steps: tuple[int, ...] = ()
    """At which the policy was evaluated while it learnt."""
    successes: tuple[float, ...] = ()
    """Share of declared success at each of `steps`."""
    terms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Term, or "total" -> mean per step in the course of training."""
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
        """Write it durably."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the saved outcome, or None."""
        path = folder / FILE
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        found |= {name: tuple(found[name]) for name in ("steps", "successes")}
        return cls(**(found | {"terms": {name: tuple(values) for name, values in found["terms"].items()}}))


class Trainer(Protocol):
    """Trains a policy from scratch with a program as its reward."""

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Return the outcome, with `failure` if the program or the training failed; the same for the same arguments."""


class KeptTrainer:
    """A trainer that keeps the outcome of each program and seed in a folder, and repeats none."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self._trainer, self._folder = trainer, folder

    def train(self, program: RewardProgram, seed: int) -> Outcome:
        """Return the kept outcome, or trains and keeps it."""
        folder = self._folder / training_name(program, seed)
        if (found := Outcome.read(folder)) is not None:
            return found
        outcome = self._trainer.train(program, seed)
        outcome.save(folder)
        return outcome

    def has(self, program: RewardProgram, seed: int) -> bool:
        """True if the training is finished."""
        return (self._folder / training_name(program, seed) / FILE).exists()


def training_name(program: RewardProgram, seed: int) -> str:
    """Return the name of the folder of a training: equal programs share it."""
    return f"{program.hash[:16]}-{seed}"


@dataclass(frozen=True)
class Candidate:
    """A reply with its program and its training."""

    round: int
    """From 1."""
    index: int
    """Sample of the round's prompt, from 0."""
    text: str = ""
    """Text of the reply; of the last one if it was repaired."""
    program: RewardProgram | None = None
    """None if the text is no usable program."""
    status: str = "ok"
    """"ok", or the status of the failed reply, grammar check or validation, or "training"."""
    reason: str = ""
    """The problem, in words for a language model."""
    repairs: int = 0
    """Number of repairs before this text."""
    outcome: Outcome | None = None
    """None before training."""

    @property
    def name(self) -> str:
        """Name in tables and folders."""
        return f"{self.round}-{self.index}"

    @property
    def is_scored(self) -> bool:
        """True if a policy was evaluated."""
        return self.outcome is not None and self.outcome.score is not None

    @property
    def has_succeeded(self) -> bool:
        """True if its policy succeeded at least once in the selection episodes."""
        return self.merit[0] > 0

    @property
    def merit(self) -> tuple[float, float]:
        """Sort key of candidates; lowest if nothing was evaluated."""
        return (Outcome() if self.outcome is None else self.outcome).merit

    def trained(self, outcome: Outcome) -> Candidate:
        """Return it with the outcome of its training, with its failure as the status if it failed."""
        if outcome.failure:
            return replace(self, outcome=outcome, status="training", reason=outcome.failure)
        return replace(self, outcome=outcome)

    def facts(self) -> Mapping[str, Any]:
        """Return plain values for a record."""
        facts: dict[str, Any] = {"round": self.round, "index": self.index, "status": self.status, "reason": self.reason}
        facts |= {"repairs": self.repairs, "program": None if self.program is None else self.program.hash}
        return facts | ({} if self.outcome is None else {"score": self.outcome.score, "training": self.outcome.folder})


def best_of(candidates: list[Candidate]) -> Candidate | None:
    """Return the one with the greatest merit, the earlier of equal ones; None if none was judged."""
    scored = [each for each in candidates if each.is_scored]
    return max(scored, key=lambda each: (each.merit, -each.round, -each.index)) if scored else None


@dataclass(frozen=True)
class Round:
    """Result of one round of a search."""

    number: int
    """From 1."""
    candidates: tuple[Candidate, ...]
    diversity: Diversity
    incumbent: Candidate | None
    """Chosen from all rounds so far."""
    best: Candidate | None = None
    """Chosen from this round."""
    worst: Candidate | None = None
    """Chosen from this round if the method does so."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, candidates: Iterable[Candidate], incumbent: Candidate | None, **chosen: Candidate | None) -> Round:
        """Return a round with warnings on its candidates."""
        all_of_them = tuple(candidates)
        found = diversity([each.program for each in all_of_them if each.program is not None])
        return cls(number, all_of_them, found, incumbent, warnings=tuple(_warnings(all_of_them, found)), **chosen)


def commonest_failure(candidates: Iterable[Candidate]) -> tuple[Candidate, int] | None:
    """Return the first candidate with the commonest kind of error, and the number of candidates with it."""
    failed = [each for each in candidates if each.status not in ("ok", "budget")]
    if not failed:
        return None
    status, share = Counter(each.status for each in failed).most_common(1)[0]
    return next(each for each in failed if each.status == status), share


def _warnings(candidates: tuple[Candidate, ...], found: Diversity) -> Iterator[str]:
    if found.is_collapsed:
        yield f"the programs are nearly the same ({found}): raise the temperature, or change the task sentence"
    failure = commonest_failure(candidates)
    if failure is not None and not any(each.outcome is not None and not each.outcome.failure for each in candidates):
        yield f"no program could be used; the commonest error ({failure[1]} of {len(candidates)}): {failure[0].reason}"
