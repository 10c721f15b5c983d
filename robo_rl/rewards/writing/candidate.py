"""A candidate: the reply of a model with its program, or the reason why it is none."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.rewards.programs.program import RewardProgram


@dataclass(frozen=True)
class Candidate:
    """A reply with its program."""

    round: int
    """From 1."""
    index: int
    """Sample of the round's prompt, from 0."""
    text: str = ""
    """Text of the reply; of the last one if it was repaired."""
    program: RewardProgram | None = None
    """None if the text is no usable program."""
    status: str = "ok"
    """"ok", or the status of the failed reply, grammar check or validation."""
    reason: str = ""
    """The problem, in words for a language model."""
    repairs: int = 0
    """Number of repairs before this text."""

    @property
    def name(self) -> str:
        """Name in tables and folders."""
        return f"{self.round}-{self.index}"
