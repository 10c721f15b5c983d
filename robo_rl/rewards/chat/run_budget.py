"""Budget of one run for a language model: a question is sent only if its answer cannot exceed the budget."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from robo_rl.errors import BudgetReached, InvalidSetting
from robo_rl.rewards.chat.log import Record, spent
from robo_rl.rewards.chat.models import Paid
from robo_rl.rewards.chat.question import Answer, Question

MARGIN = 1.25
"""Safety factor on the largest number of tokens per byte so far, to estimate the tokens of the next question."""
FRAME = 32
"""Tokens that a server may add around a message."""


class RunBudget:
    """Budget that counts the cost of the calls of a run, and reserves the largest possible cost of the next one.

    Until the server has reported a number of tokens, a question counts as one token per byte, which no tokenizer exceeds.
    """

    def __init__(self, model: Paid, records: Sequence[Record]) -> None:
        """Read the limits from the model's terms, and the cost so far from the run's log."""
        self._model, self._terms = model, model.terms
        before = spent(records)
        self._tokens, self._cost = int(before["llm/tokens"]), before["llm/cost"]
        self._share: float | None = None
        self._reserved: dict[str, tuple[int, int]] = {}

    def may_ask(self, question: Question) -> bool:
        """Return True, and reserve the cost, if the budget suffices for the longest possible answer."""
        if not self._terms.is_limited:
            return True
        most = self._longest_question(question), _longest_answer(self._model, question)
        prompts, answers = (sum(each) for each in zip(most, *self._reserved.values(), strict=True))
        tokens, cost = self._tokens + prompts + answers, self._cost + self._terms.cost(prompts, answers)
        if 0 < self._terms.most_tokens < tokens or 0 < self._terms.most_cost < cost:
            return False
        self._reserved[question.hash] = most
        return True

    def heard(self, question: Question, answer: Answer) -> None:
        """Replace the reserved cost of an answer by its actual cost."""
        self._reserved.pop(question.hash, None)
        prompts, answers = answer.prompt_tokens, answer.completion_tokens
        self._tokens, self._cost = self._tokens + prompts + answers, self._cost + self._terms.cost(prompts, answers)
        self._share = max(self._share or 0.0, prompts / _bytes(question)) if prompts else self._share

    def release(self) -> None:
        """Release the reserved cost of questions that are no longer being answered."""
        self._reserved.clear()

    def reached(self, missing: int) -> BudgetReached:
        """Make the error for a spent budget; missing: number of questions that are not sent."""
        return BudgetReached(
            f"The next call could pass the budget of this run; {missing} of the replies at hand are not asked for.",
            got=f"{self._tokens} tokens, cost {self._cost:.4g}",
            allowed=self._terms.limits,
            fix="the same command with a larger terms.most_cost or terms.most_tokens goes on where this one stopped",
        )

    def _longest_question(self, question: Question) -> int:
        share = 1.0 if self._share is None else min(1.0, MARGIN * self._share)
        return math.ceil(_bytes(question) * share) + FRAME * (2 + len(question.turns))


def _longest_answer(model: Any, question: Question) -> int:
    """Return the largest number of tokens of an answer; raises InvalidSetting if the model has no limit."""
    limits = model.request(question) if hasattr(model, "request") else {"max_tokens": getattr(model, "max_tokens", None)}
    most = limits.get("max_completion_tokens") or limits.get("max_tokens")
    if not isinstance(most, int):
        raise InvalidSetting("A budget needs a longest answer.", got=most, fix="set max_tokens, or no budget")
    return most


def _bytes(question: Question) -> int:
    said = [question.system, json.dumps(question.schema), *(words for _, words in question.turns), *question.parts]
    return sum(len(str(part).encode(errors="replace")) for part in said)
