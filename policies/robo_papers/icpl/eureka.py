"""Eureka (Ma et al. 2024, ICLR): sample programs, train with each, show the model the best one's training, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robo_papers.icpl.candidates import TrainedCandidate, best_of
from robo_papers.icpl.loop import Search, SearchConfig
from robo_papers.icpl.prompts import improve, reflection
from robo_papers.icpl.rounds import Round
from robo_rl.errors import require_allowed
from robo_rl.rewards.chat.question import Question
from robo_rl.rewards.writing.candidate import Candidate


@dataclass(frozen=True)
class EurekaConfig(SearchConfig):
    """Settings of Eureka (Ma et al. 2024): size of the search; the paper's 16 programs in 5 rounds cost 80 trainings.

    With few programs, the first round needs luck.
    """

    repairs: int = 0
    """Largest number of repairs of a program before it counts as failed; the paper samples more instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"repairs": (self.repairs >= 0, "0 or more")})


class Eureka(Search[EurekaConfig]):
    """Search by Eureka: chooses by declared success in episodes that were not trained on, never by a program's rewards.

    Differs from the paper: the best program *so far* is shown to the model, not that of the last round, so that a bad round
    loses no ground; and after a round without a usable program, the model gets the commonest error.
    """

    def population(self, prompt: Question, number: int) -> Sequence[Candidate]:
        """Sample the programs of a round, each with up to `repairs` repairs."""
        config = self._config
        return [*self._writer.candidates(prompt, config.programs, round=number, repairs=config.repairs)]

    def choose(
        self, candidates: Sequence[TrainedCandidate], incumbent: TrainedCandidate | None
    ) -> dict[str, TrainedCandidate | None]:
        """Choose the candidate with the greatest merit; the best of earlier rounds stays among equal ones."""
        best = best_of([*candidates])
        return {"best": best, "incumbent": best_of([each for each in (incumbent, best) if each is not None])}

    def next_prompt(self, found: Round, before: TrainedCandidate | None) -> Question:
        """Make the prompt that shows the best program so far and how its training went."""
        shown = found.incumbent
        if shown is None or shown.program is None or shown.outcome is None:
            return self._opening
        return improve(self._opening, shown.program, reflection(shown.outcome))
