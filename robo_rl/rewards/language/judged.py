"""Replies of a judge, such as the endpoint of a server: kept in the cache of all runs, within the budget of this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from robo_rl.errors import BudgetReached, JudgeUnavailable
from robo_rl.rewards.cached_judge import SILENT, CachedJudge
from robo_rl.rewards.judging import Answer, Judge, Question
from robo_rl.rewards.language.budget import Budget
from robo_rl.rewards.language.call_log import Record
from robo_rl.rewards.language.source import Heard, Request


class JudgeSource:
    """Asks a judge what no run has asked it before, several requests at once."""

    def __init__(self, judge: Judge, records: list[Record]) -> None:
        """Wraps a judge. records: of this run so far, whose cost counts for the budget."""
        self.identity, self._terms, self._judge, self._records = judge.identity, judge.terms, judge, records
        self._asking, self._budget = CachedJudge(_without_limits(judge), self), Budget(judge, records)
        self._pending: dict[str, Request] = {}
        self._told: Heard | None = None
        self._has_answered = False

    def require_key(self) -> None:
        """Raises JudgeUnavailable where a key is missing; none is needed while run or cache may have the answers."""
        require: Callable[[], object] | None = getattr(self._judge, "require_key", None)
        if require is not None and not self._records and not self._asking.has_answered:
            require()

    def answer(self, requests: Sequence[Request], heard: Heard) -> None:
        """Tells each answer; raises BudgetReached, JudgeChanged, JudgeUnavailable. What came until then was told."""
        questions = [request.prompt.question(request.sample) for request in requests]
        self._pending = {question.hash: request for question, request in zip(questions, requests, strict=True)}
        self._told = heard
        try:
            answers = self._asking.answers(questions)
        except BudgetReached:
            raise self._budget.reached(len(self._pending)) from None
        finally:
            self._budget.let_go()
        self._require_an_answer(answers)

    def may_ask(self, question: Question) -> bool:
        """Reserves what an answer may cost at most, and returns whether the budget has it."""
        return self._budget.reserve(question)

    def heard(self, question: Question, answer: Answer, is_kept: bool) -> None:
        """Passes an answer on, which is then in the log, and pays for it."""
        assert self._told is not None, "a judge answers only what it was asked"
        cost = self._terms.cost(answer.prompt_tokens, answer.completion_tokens)
        self._told(self._pending.pop(question.hash), answer, "cache" if is_kept else "server", cost)
        if not is_kept:
            self._budget.pay(question, answer)

    def report(self) -> str:
        """Returns nothing beyond what the log says."""
        return ""

    def _require_an_answer(self, answers: Sequence[Answer]) -> None:
        """Raises JudgeUnavailable where nothing was ever answered: the settings are wrong, or the server is not there."""
        if not self._has_answered and all(answer.status in SILENT for answer in answers):
            raise JudgeUnavailable(
                f"{self.identity[0]} has not answered even once.",
                got=f"{answers[0].status}: {answers[0].raw}",
                fix="look at the server, and at base_url and model; then the same command again",
            )
        self._has_answered = True


def _without_limits(judge: Any) -> Judge:
    """Returns the judge without a budget of its own, which would count what other runs have spent."""
    unlimited: Judge = replace(judge, terms=replace(judge.terms, most_tokens=0, most_cost=0.0))
    return unlimited
