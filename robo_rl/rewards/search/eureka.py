"""Eureka (Ma et al. 2024, ICLR): sample programs, train with each, tell the model how the best one's training went, again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robo_rl.errors import BudgetReached, require_allowed
from robo_rl.rewards.language.conversation import Prompt
from robo_rl.rewards.search.candidate import Candidate, best_of
from robo_rl.rewards.search.outcome import Trainer
from robo_rl.rewards.search.population import Round, Training, better, commonest_failure
from robo_rl.rewards.search.prompts import Example, RewardTask, all_failed, at, improve, opening
from robo_rl.rewards.search.reflection import reflection
from robo_rl.rewards.search.writing import Writer

ROUNDS_DONE = "all rounds are done"
TRAININGS_SPENT = "the budget of trainings is spent"
MODEL_SPENT = "the budget of the model is spent"


@dataclass(frozen=True)
class EurekaConfig:
    """How much is tried; the paper's 16 programs in 5 rounds cost 80 trainings."""

    rounds: int = 5
    """Generations, as in the paper."""
    programs: int = 16
    """Of one round, as in the paper; with few, success depends on luck in the first round."""
    repairs: int = 0
    """How often a program with an error is sent back before it counts as failed; the paper samples more instead."""
    temperature: float = 1.0
    """Of sampling, as in the paper."""
    budget: int = 0
    """Trainings after which the search ends; 0 for as many as rounds and programs allow."""
    seed: int = 0
    """Of every training."""

    def __post_init__(self) -> None:
        least = {name: getattr(self, name) >= 1 for name in ("rounds", "programs")}
        allowed = {name: (fits, "1 or more") for name, fits in least.items()}
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("repairs", "budget", "seed")}
        require_allowed(self, allowed | {"temperature": (0 <= self.temperature <= 2, "0 to 2")})


class Eureka:
    """Chooses by declared success in episodes that were not trained on, never by what a program pays.

    Differs from the paper: the best program *so far* is shown to the model, not that of the last round, so that a bad round
    loses no ground; and when a whole round fails, the model is told why.
    """

    def __init__(
        self, writer: Writer, trainer: Trainer, task: RewardTask, config: EurekaConfig, examples: Sequence[Example] = ()
    ) -> None:
        self._writer, self._trainer, self._config = writer, trainer, config
        self._opening = at(opening(task, examples), config.temperature)
        self.ended = ""

    def rounds(self) -> Iterator[Round]:
        """Yields rounds until all are done or a budget is spent."""
        training = Training(self._trainer, self._config.seed, self._config.budget)
        prompt, incumbent = self._opening, None
        for number in range(1, self._config.rounds + 1):
            try:
                candidates = [training.trained(each) for each in self._population(prompt, number)]
            except BudgetReached:
                self.ended = MODEL_SPENT
                return
            best = best_of(candidates)
            incumbent = better(incumbent, best)
            yield Round.of(number, candidates, incumbent, best=best)
            if training.is_spent:
                self.ended = TRAININGS_SPENT
                return
            prompt = self._next(incumbent, candidates)
        self.ended = ROUNDS_DONE

    def _population(self, prompt: Prompt, number: int) -> Sequence[Candidate]:
        config = self._config
        return [*self._writer.candidates(prompt, config.programs, round=number, repairs=config.repairs)]

    def _next(self, incumbent: Candidate | None, candidates: Sequence[Candidate]) -> Prompt:
        """Returns the prompt of the next round: from the incumbent, and from the commonest error where all failed."""
        prompt = self._opening
        if incumbent is not None and incumbent.program is not None and incumbent.outcome is not None:
            prompt = improve(prompt, incumbent.program, reflection(incumbent.outcome))
        failure = commonest_failure(candidates)
        if failure is None or best_of([*candidates]) is not None:
            return prompt
        example, share = failure
        failures = sum(each.status not in ("ok", "budget") for each in candidates)
        return all_failed(prompt, example.text, failures, len(candidates), example.reason, share)
