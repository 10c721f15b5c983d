"""ICPL (in-context preference learning, Yu et al. 2024): a person says which policies they like best and least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robo_rl.errors import BudgetReached, require_allowed
from robo_rl.rewards.language.conversation import Prompt
from robo_rl.rewards.search.candidate import Candidate
from robo_rl.rewards.search.eureka import MODEL_SPENT, ROUNDS_DONE, TRAININGS_SPENT
from robo_rl.rewards.search.outcome import Trainer
from robo_rl.rewards.search.population import Round, Training, commonest_failure
from robo_rl.rewards.search.preferring import Comparer, extremes, preferred
from robo_rl.rewards.search.prompts import Example, Judged, RewardTask, all_failed, at, difference, opening, prefer
from robo_rl.rewards.search.reflection import traces
from robo_rl.rewards.search.writing import Writer


@dataclass(frozen=True)
class ICPLConfig:
    """How much is tried, and asked of whoever compares: 7 questions for six programs, and one about the incumbent."""

    rounds: int = 5
    """As in the released code."""
    programs: int = 6
    """That are trained in a round, as in the released code."""
    attempts: int = 4
    """Replies that are asked for, for each program of a round, before fewer programs must do."""
    temperature: float = 1.0
    """Of sampling, as in the released code."""
    budget: int = 0
    """Trainings after which the search ends; 0 for as many as rounds and programs allow."""
    seed: int = 0
    """Of every training."""

    def __post_init__(self) -> None:
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("rounds", "programs", "attempts")}
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("budget", "seed")}
        require_allowed(self, allowed | {"temperature": (0 <= self.temperature <= 2, "0 to 2")})


class ICPL:
    """Chooses by comparisons alone; the declared success is reported, and no prompt is made of it.

    Differs from the released code: there the hidden score makes the last choice in a person's place; here the best of each
    round is compared with the incumbent, which the next prompt shows as the good example.
    """

    def __init__(
        self,
        writer: Writer,
        trainer: Trainer,
        task: RewardTask,
        config: ICPLConfig,
        comparer: Comparer,
        examples: Sequence[Example] = (),
    ) -> None:
        self._writer, self._trainer, self._config, self._comparer = writer, trainer, config, comparer
        self._opening = at(opening(task, examples), config.temperature)
        self.ended = ""

    def rounds(self) -> Iterator[Round]:
        """Yields rounds until all are done or a budget is spent."""
        training = Training(self._trainer, self._config.seed, self._config.budget)
        prompt, history = self._opening, list[str]()
        incumbent: Candidate | None = None
        for number in range(1, self._config.rounds + 1):
            try:
                candidates = [training.trained(each) for each in self._population(prompt, number)]
                judged = [each for each in candidates if each.is_scored]
                best, worst = extremes(self._comparer, judged) if judged else (None, None)
                before, incumbent = incumbent, self._chosen(incumbent, best)
                yield Round.of(number, candidates, incumbent, best=best, worst=worst)
                if training.is_spent:
                    self.ended = TRAININGS_SPENT
                    return
                if number < self._config.rounds:
                    history += self._change(number, before, incumbent)
                    prompt = self._next(incumbent, worst, history, candidates)
            except BudgetReached:
                self.ended = MODEL_SPENT
                return
        self.ended = ROUNDS_DONE

    def _population(self, prompt: Prompt, number: int) -> list[Candidate]:
        """Asks again for every program that cannot be used, a bounded number of times."""
        config, found = self._config, list[Candidate]()
        while True:
            missing = config.programs - sum(each.program is not None for each in found)
            room = config.attempts * config.programs - len(found)
            if min(missing, room) <= 0:
                return found
            found += self._writer.candidates(prompt, min(missing, room), round=number, first=len(found))

    def _chosen(self, incumbent: Candidate | None, best: Candidate | None) -> Candidate | None:
        if incumbent is None or best is None or _same(incumbent, best):
            return incumbent or best
        return preferred(self._comparer, incumbent, best)[0]

    def _change(self, number: int, before: Candidate | None, after: Candidate | None) -> list[str]:
        """Returns what the history says of a round that brought a better program."""
        if before is None or after is None or before is after or before.program is None or after.program is None:
            return []
        told = self._writer.words(difference(before.program, after.program)) or "(not known)"
        return [f"Before round {number} the terms of the good program were\n{_shown(before).traces}\nWhat changed then: {told}"]

    def _next(
        self, good: Candidate | None, bad: Candidate | None, history: Sequence[str], candidates: Sequence[Candidate]
    ) -> Prompt:
        prompt = self._opening
        if good is not None:
            other = None if bad is None or _same(good, bad) else bad
            prompt = prefer(prompt, _shown(good), None if other is None else _shown(other), history)
        failure = commonest_failure(candidates)
        if failure is None or any(each.is_scored for each in candidates):
            return prompt
        failures = sum(each.status not in ("ok", "budget") for each in candidates)
        return all_failed(prompt, failure[0].text, failures, len(candidates), failure[0].reason, failure[1])


def _same(first: Candidate, second: Candidate) -> bool:
    return first.program is not None and second.program is not None and first.program.hash == second.program.hash


def _shown(candidate: Candidate) -> Judged:
    """Returns what may be told of a candidate: its outcome goes in without score and successes."""
    if candidate.program is None or candidate.outcome is None:
        raise AssertionError(f"candidate {candidate.name} was not trained")
    return Judged(candidate.program.source, traces(candidate.outcome.unscored().terms))
