"""The candidates of one round: trained as long as the budget lasts, and what a search tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from robo_rl.rewards.search.candidate import Candidate, best_of
from robo_rl.rewards.search.diversity import Diversity, diversity
from robo_rl.rewards.search.outcome import Outcome, Trainer


@dataclass(frozen=True)
class Round:
    """What one round of a search came to."""

    number: int
    """From 1."""
    candidates: tuple[Candidate, ...]
    diversity: Diversity
    incumbent: Candidate | None
    """Chosen from all rounds so far."""
    best: Candidate | None = None
    """Chosen from this round."""
    worst: Candidate | None = None
    """Of this round, where the method looks for it."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, candidates: Iterable[Candidate], incumbent: Candidate | None, **chosen: Candidate | None) -> Round:
        """Returns a round with the warnings that its candidates give rise to."""
        all_of_them = tuple(candidates)
        found = diversity([each.program for each in all_of_them if each.program is not None])
        return cls(number, all_of_them, found, incumbent, warnings=tuple(_warnings(all_of_them, found)), **chosen)


class Search(Protocol):
    """A search for a program. It never stops but at its budget: what fails is a candidate with a reason."""

    @property
    def ended(self) -> str:
        """Why there are no more rounds; empty before that."""

    def rounds(self) -> Iterator[Round]:
        """Yields rounds as they are finished.

        Called again it asks and trains the same again, which costs nothing where model and trainer keep what they did.
        """


class Training:
    """Trains candidates, all from one seed, until so many trainings are spent."""

    def __init__(self, trainer: Trainer, seed: int, budget: int) -> None:
        """budget: trainings; 0 for no limit."""
        self._trainer, self._seed, self._budget = trainer, seed, budget
        self._outcomes: dict[str, Outcome] = {}

    @property
    def is_spent(self) -> bool:
        """Whether no other program can be trained."""
        return 0 < self._budget <= len(self._outcomes)

    def trained(self, candidate: Candidate) -> Candidate:
        """Returns a candidate with its outcome: of an equal program where there was one, and none beyond the budget."""
        program = candidate.program
        if program is None:
            return candidate
        if program.hash not in self._outcomes:
            if self.is_spent:
                return replace(candidate, status="budget", reason="The budget of trainings was spent.")
            self._outcomes[program.hash] = self._trainer.train(program, self._seed)
        return candidate.trained(self._outcomes[program.hash])


def commonest_failure(candidates: Iterable[Candidate]) -> tuple[Candidate, int] | None:
    """Returns the first candidate with the commonest kind of error, and how many have it."""
    failed = [each for each in candidates if each.status not in ("ok", "budget")]
    if not failed:
        return None
    status, share = Counter(each.status for each in failed).most_common(1)[0]
    return next(each for each in failed if each.status == status), share


def better(first: Candidate | None, second: Candidate | None) -> Candidate | None:
    """Returns the one with the greater merit, the first of equal ones."""
    return best_of([each for each in (first, second) if each is not None])


def _warnings(candidates: tuple[Candidate, ...], found: Diversity) -> Iterator[str]:
    if found.is_collapsed:
        yield f"the programs are nearly the same ({found}): raise the temperature, or change the task sentence"
    failure = commonest_failure(candidates)
    if failure is not None and not any(each.outcome is not None and not each.outcome.failure for each in candidates):
        yield f"no program could be used; the commonest error ({failure[1]} of {len(candidates)}): {failure[0].reason}"
