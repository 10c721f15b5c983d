"""ICPL (in-context preference learning, Yu et al. 2024): a person chooses the best and the worst policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from robo_papers.icpl.candidates import TrainedCandidate, Trainer
from robo_papers.icpl.loop import Search, SearchConfig
from robo_papers.icpl.preferring import Comparer, extremes, preferred
from robo_papers.icpl.prompts import difference, prefer, traces_of
from robo_papers.icpl.rounds import Round
from robo_rl.errors import require_allowed
from robo_rl.rewards.chat.question import Question
from robo_rl.rewards.writing.candidate import Candidate
from robo_rl.rewards.writing.prompts import Example, RewardTask
from robo_rl.rewards.writing.writer import Writer


@dataclass(frozen=True)
class ICPLConfig(SearchConfig):
    """Settings of ICPL (Yu et al. 2024): size of the search; 7 comparisons for six programs, and one with the best so far."""

    programs: int = 6
    """Programs that are trained in a round, as in the released code."""
    attempts: int = 4
    """Largest number of replies per program of a round; after them fewer programs are trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"attempts": (self.attempts >= 1, "1 or more")})


class ICPL(Search[ICPLConfig]):
    """Search by ICPL: chooses by comparisons of policies alone; declared success is reported, and no prompt is made of it.

    Differs from the released code: there the hidden score makes the last choice in a person's place; here the best of each
    round is compared with the best so far, which the next prompt shows as the good example.
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
        super().__init__(writer, trainer, task, config, examples)
        self._comparer, self._history = comparer, list[str]()

    @override
    def rounds(self) -> Iterator[Round]:
        self._history = []
        return super().rounds()

    def population(self, prompt: Question, number: int) -> Sequence[Candidate]:
        """Ask the model for the programs of a round; ask again for every unusable one, a bounded number of times."""
        config, found = self._config, list[Candidate]()
        while True:
            missing = config.programs - sum(each.program is not None for each in found)
            room = config.attempts * config.programs - len(found)
            if min(missing, room) <= 0:
                return found
            found += self._writer.candidates(prompt, min(missing, room), round=number, first=len(found))

    def choose(
        self, candidates: Sequence[TrainedCandidate], incumbent: TrainedCandidate | None
    ) -> dict[str, TrainedCandidate | None]:
        """Compare the trained candidates, and the best of them with the best of earlier rounds."""
        trained = [each for each in candidates if each.is_scored]
        best, worst = extremes(self._comparer, trained) if trained else (None, None)
        if incumbent is None or best is None or _same(incumbent, best):
            return {"best": best, "worst": worst, "incumbent": incumbent or best}
        return {"best": best, "worst": worst, "incumbent": preferred(self._comparer, incumbent, best)[0]}

    def next_prompt(self, found: Round, before: TrainedCandidate | None) -> Question:
        """Make the prompt that shows the good and the bad example, and how good programs changed."""
        good, bad = found.incumbent, found.worst
        self._history += self._change(found.number, before, good)
        if good is None:
            return self._opening
        return prefer(self._opening, good, None if bad is None or _same(good, bad) else bad, self._history)

    def _change(self, number: int, before: TrainedCandidate | None, after: Candidate | None) -> list[str]:
        if before is None or after is None or before is after or before.program is None or after.program is None:
            return []
        change = self._writer.words(difference(before.program, after.program)) or "(not known)"
        return [f"Before round {number} the terms of the good program were\n{traces_of(before)}\nWhat changed then: {change}"]


def _same(first: Candidate, second: Candidate) -> bool:
    return first.program is not None and second.program is not None and first.program.hash == second.program.hash
