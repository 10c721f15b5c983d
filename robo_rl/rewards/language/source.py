"""The seam behind a language model: whatever answers requests. A judge, the log of a run, or a pack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from robo_rl.rewards.judging import Answer
from robo_rl.rewards.language.conversation import Origin, Prompt

REPAIR = " repair"
"""Behind the purpose of a prompt that asks for a right answer once more."""


@dataclass(frozen=True)
class Request:
    """One of several answers to a prompt."""

    prompt: Prompt
    """What is asked."""
    sample: int
    """Its number, from 0."""
    round: int
    """How many other prompts of this purpose came before this one in the run."""


Heard = Callable[[Request, Answer, Origin, float], None]
"""Takes an answer with its cost as soon as it is there, and returns when it is logged."""


class Source(Protocol):
    """Answers requests."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and a hash of all that its answers follow from."""

    def answer(self, requests: Sequence[Request], heard: Heard) -> None:
        """Tells each answer as it comes in, in any order; raises JudgeError where there can be none."""

    def report(self) -> str:
        """Returns what a reader of results must know of it, in a line."""
