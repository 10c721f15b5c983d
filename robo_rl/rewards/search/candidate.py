"""One reply of a model that should be a reward program: what it says, whether it can be used, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.search.outcome import Outcome


@dataclass(frozen=True)
class Candidate:
    """A reply with everything that belongs to it, so that no list of replies and list of trainings can fall out of step."""

    round: int
    """From 1."""
    index: int
    """Sample of the round's prompt, from 0."""
    text: str = ""
    """Of the reply, the last one where it was mended."""
    program: RewardProgram | None = None
    """None where the text is no usable program."""
    status: str = "ok"
    """"ok" while nothing is wrong; else the status of the reply, the validator or the probation, or "training"."""
    reason: str = ""
    """What is wrong, in words fit to be shown to a language model."""
    repairs: int = 0
    """How often the model was told what is wrong before this text."""
    outcome: Outcome | None = None
    """None before training."""

    @property
    def name(self) -> str:
        """For tables and folders."""
        return f"{self.round}-{self.index}"

    @property
    def is_scored(self) -> bool:
        """Whether there is a policy that was judged."""
        return self.outcome is not None and self.outcome.score is not None

    @property
    def has_succeeded(self) -> bool:
        """Whether its policy reached declared success at least once, in the episodes that choose."""
        return self.merit[0] > 0

    @property
    def merit(self) -> tuple[float, float]:
        """What candidates are chosen by; the least of all where nothing was judged."""
        return (Outcome() if self.outcome is None else self.outcome).merit

    def trained(self, outcome: Outcome) -> Candidate:
        """Returns it with what came of training, invalid where that failed."""
        if outcome.failure:
            return replace(self, outcome=outcome, status="training", reason=outcome.failure)
        return replace(self, outcome=outcome)

    def told(self) -> Mapping[str, Any]:
        """Returns what a record says of it, in plain values."""
        facts: dict[str, Any] = {"round": self.round, "index": self.index, "status": self.status, "reason": self.reason}
        facts |= {"repairs": self.repairs, "program": None if self.program is None else self.program.hash}
        return facts | ({} if self.outcome is None else {"score": self.outcome.score, "training": self.outcome.folder})


def best_of(candidates: list[Candidate]) -> Candidate | None:
    """Returns the one with the greatest merit, the earlier of equal ones; None where none was judged."""
    scored = [each for each in candidates if each.is_scored]
    return max(scored, key=lambda each: (each.merit, -each.round, -each.index)) if scored else None
