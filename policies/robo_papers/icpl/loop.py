"""The loop of Eureka and ICPL: rounds of candidates that are written, trained and chosen from, within budgets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from robo_papers.icpl.candidates import Outcome, TrainedCandidate, Trainer, commonest_failure
from robo_papers.icpl.prompts import all_failed
from robo_papers.icpl.rounds import Round
from robo_rl.errors import BudgetReached, require_allowed
from robo_rl.rewards.chat.question import Question
from robo_rl.rewards.writing.candidate import Candidate
from robo_rl.rewards.writing.prompts import Example, RewardTask, at, initial_prompt
from robo_rl.rewards.writing.writer import Writer

SAME = 3
"""Equal answers to one prompt after which it is not sent again: more would be paid, and say the same."""


@dataclass(frozen=True)
class SearchConfig:
    """Settings common to Eureka and ICPL: rounds, programs of a round, sampling temperature, budget of trainings."""

    rounds: int = 5
    """Number of rounds (generations), as in the papers."""
    programs: int = 16
    """Number of programs of one round."""
    temperature: float = 1.0
    """Temperature of sampling, as in the papers."""
    budget: int = 0
    """Largest number of trainings of the search; 0 for as many as rounds and programs allow."""
    seed: int = 0
    """Seed of every training."""

    def __post_init__(self) -> None:
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("rounds", "programs")}
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("budget", "seed")}
        require_allowed(self, allowed | {"temperature": (0 <= self.temperature <= 2, "0 to 2")})


Config = TypeVar("Config", bound=SearchConfig)


class Search(ABC, Generic[Config]):
    """Base class of searches for a reward program.

    A search stops only at its budget: a failure is a candidate with a reason.
    """

    def __init__(
        self, writer: Writer, trainer: Trainer, task: RewardTask, config: Config, examples: Sequence[Example] = ()
    ) -> None:
        self._writer, self._trainer, self._config = writer, trainer, config
        self._opening = at(initial_prompt(task, examples), config.temperature)
        self.ended = ""
        """Reason of the end; empty before it."""

    @abstractmethod
    def population(self, prompt: Question, number: int) -> Sequence[Candidate]:
        """Return the candidates of a round, which are not trained yet."""

    @abstractmethod
    def choose(
        self, candidates: Sequence[TrainedCandidate], incumbent: TrainedCandidate | None
    ) -> dict[str, TrainedCandidate | None]:
        """Choose the best and the worst program of a round, and the best of all rounds so far.

        Returns:
            Fields of `Round` by name: "best", "worst" (may be missing) and "incumbent".
        """

    @abstractmethod
    def next_prompt(self, found: Round, before: TrainedCandidate | None) -> Question:
        """Return the prompt of the next round, given a finished round and the incumbent (best program) before it."""

    def rounds(self) -> Iterator[Round]:
        """Yield rounds as they are finished, until all are done or a budget is spent.

        A second call repeats all requests and trainings, which costs nothing if model and trainer keep their results.
        """
        outcomes: dict[str, Outcome] = {}
        prompt, incumbent = self._opening, None
        said, times = "", 0
        for number in range(1, self._config.rounds + 1):
            try:
                candidates = [self._trained(each, outcomes) for each in self.population(prompt, number)]
                found = Round.of(number, candidates, **self.choose(candidates, incumbent))
                yield found
                if self._is_spent(outcomes):
                    self.ended = "the budget of trainings is spent"
                    return
                if number < self._config.rounds:
                    following = self._after_failures(self.next_prompt(found, incumbent), candidates)
                    texts = {each.text for each in candidates}
                    times = (times if texts == {said} else 0) + len(candidates) if len(texts) == 1 else 0
                    said = next(iter(texts)) if len(texts) == 1 else ""
                    if times >= SAME and following.hash == prompt.request:
                        self.ended = f"the model repeats itself: {times} equal answers, and the next prompt would be the same"
                        return
                    prompt, incumbent = following, found.incumbent
            except BudgetReached:
                self.ended = "the budget of the model is spent"
                return
        self.ended = "all rounds are done"

    def _is_spent(self, outcomes: dict[str, Outcome]) -> bool:
        return 0 < self._config.budget <= len(outcomes)

    def _trained(self, candidate: Candidate, outcomes: dict[str, Outcome]) -> TrainedCandidate:
        """Return a candidate with its outcome: that of an equal program if there is one; none beyond the budget."""
        program = candidate.program
        if program is None:
            return TrainedCandidate.of(candidate)
        if program.hash not in outcomes:
            if self._is_spent(outcomes):
                return TrainedCandidate.of(replace(candidate, status="budget", reason="The budget of trainings was spent."))
            outcomes[program.hash] = self._trainer.train(program, self._config.seed)
        return TrainedCandidate.of(candidate, outcomes[program.hash])

    @staticmethod
    def _after_failures(prompt: Question, candidates: Sequence[TrainedCandidate]) -> Question:
        """Return the prompt with the commonest error of a round in which every program failed."""
        failure = commonest_failure(candidates)
        if failure is None or any(each.is_scored for each in candidates):
            return prompt
        failures = sum(each.status not in ("ok", "budget") for each in candidates)
        return all_failed(prompt, failure[0].text, failures, len(candidates), failure[0].reason, failure[1])
