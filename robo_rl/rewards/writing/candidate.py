"""A candidate: a model's reply with its program, or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.rewards.programs.program import RewardProgram


@dataclass(frozen=True)
class Candidate:
    """Reply of a language model in a search for a reward program, with the program in it, or why there is none."""

    round: int
    """Number of the round of the search, from 1."""
    index: int
    """Number of the sample within the round, from 0."""
    text: str = ""
    """Text of the reply; after repairs, of the last one."""
    program: RewardProgram | None = None
    """The reward program in the reply; None if the text has no usable one."""
    status: str = "ok"
    """"ok", or the status of the failed reply, syntax check or trial."""
    reason: str = ""
    """What is wrong with the reply, in words for a language model."""
    repairs: int = 0
    """Number of repairs that led to this text."""

    @property
    def name(self) -> str:
        """Name of the candidate in tables and file names, made of round and index."""
        return f"{self.round}-{self.index}"
