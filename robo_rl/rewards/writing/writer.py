"""Get usable reward programs from a language model: test each, and let the model repair it (Text2Reward: Xie et al. 2024)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from robo_rl.errors import InvalidProgram, require_allowed
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.programs.program import FRAMES, RewardProgram
from robo_rl.rewards.writing.candidate import Candidate
from robo_rl.rewards.writing.prompts import Example, Feedback, RewardTask, after_feedback, at, initial_prompt, repair

NO_REPLY = {
    "cut": "The answer was cut off before its end: write a shorter one.",
    "refused": "The model refused to answer.",
}


Try = Callable[[RewardProgram], tuple[str, str]]
"""Tests a program on recorded steps in a sandbox: returns ("ok", ""), or a status and the problem in words for a model."""


class Writer:
    """Asks a language model for reward programs, and tests first their text, then their values."""

    def __init__(
        self, model: ModelClient, columns: Iterable[str], attempt: Try, frames: Mapping[str, str] | None = None
    ) -> None:
        """columns: those that programs may read; frames: of those in a hand's frame, kept with each program."""
        self.model, self._columns, self._attempt = model, tuple(columns), attempt
        self._frames = {FRAMES: dict(frames)} if frames else {}
        self._taken: Counter[str] = Counter()

    def candidates(self, prompt: Question, count: int, *, round: int, first: int = 0, repairs: int = 0) -> Iterator[Candidate]:
        """Yield candidates `first`, `first` + 1, ... of a round, each after up to `repairs` repairs by the model."""
        for index, reply in enumerate(self._ask(prompt, count), first):
            yield self._repaired(prompt, self._candidate(reply, prompt, round, index), repairs)

    def words(self, prompt: Question) -> str:
        """Return the model's answer to a question about programs; empty if there is none."""
        (reply,) = self.model.sample(prompt)
        return reply.text.strip() if reply.status == "ok" else ""

    def _ask(self, prompt: Question, count: int) -> Sequence[Answer]:
        """Return new samples of a prompt; without new sample numbers, a repeated prompt would get the same answers."""
        first = self._taken[prompt.request]
        self._taken[prompt.request] += count
        return self.model.sample(prompt, count, first=first)

    def _repaired(self, prompt: Question, candidate: Candidate, repairs: int) -> Candidate:
        """Return the candidate after repairs; each prompt contains only the last text and its problem, to stay short."""
        for number in range(1, repairs + 1):
            if candidate.status == "ok":
                break
            asked = repair(prompt, candidate.text, candidate.reason)
            (reply,) = self._ask(asked, 1)
            candidate = replace(self._candidate(reply, asked, candidate.round, candidate.index), repairs=number)
        return candidate

    def _candidate(self, reply: Answer, prompt: Question, round: int, index: int) -> Candidate:
        empty = Candidate(round, index, reply.text)
        if reply.status != "ok":
            reason = NO_REPLY.get(reply.status, f"There is no answer of the model ({reply.status}).")
            return replace(empty, status=reply.status, reason=reason)
        try:
            program = RewardProgram.parse(reply.text, self._columns)
        except InvalidProgram as error:
            return replace(empty, status=error.status, reason=str(error))
        status, reason = self._attempt(program)
        if status != "ok":
            return replace(empty, status=status, reason=reason)
        return replace(
            empty, program=replace(program, provenance={**program.provenance, **self._frames, **_origin(reply, prompt)})
        )


def _origin(reply: Answer, prompt: Question) -> Mapping[str, Any]:
    return {"model": reply.model, "purpose": prompt.purpose, "prompt": prompt.request, "sample": reply.sample}


@dataclass(frozen=True)
class Text2RewardConfig:
    """Settings of Text2Reward (Xie et al. 2024), which writes a reward program: number of repairs, sampling temperature."""

    repairs: int = 5
    """Most repairs of a program; the released code instead samples again without limit and without feedback."""
    temperature: float = 0.7
    """Sampling temperature, that of the released code."""

    def __post_init__(self) -> None:
        require_allowed(
            self, {"repairs": (self.repairs >= 0, "0 or more"), "temperature": (0 <= self.temperature <= 2, "0 to 2")}
        )


def write(
    writer: Writer,
    task: RewardTask,
    config: Text2RewardConfig,
    *,
    examples: Sequence[Example] = (),
    rounds: Sequence[Feedback] = (),
) -> Candidate:
    """Ask for the next reward program after the feedback so far; return it, or the problem of the last attempt.

    Without feedback it is the first program: zero-shot, or few-shot with examples.
    """
    prompt = at(after_feedback(initial_prompt(task, examples), rounds), config.temperature)
    (candidate,) = writer.candidates(prompt, 1, round=len(rounds) + 1, repairs=config.repairs)
    return candidate
