"""Judge with a durable cache: no question twice, strict reading, one repair at most, and a budget."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

from robo_rl.errors import BudgetReached, InvalidSetting, JudgeChanged, JudgeUnavailable
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judges.answer_cache import AnswerCache, Answers
from robo_rl.rewards.judges.judge import Answer, Judge, Question, judge, read, repaired
from robo_rl.types import Metrics

SILENT = ("unreachable", "too many requests", "not accepted")
"""Statuses without an answer: not kept, so that the question is sent again another time."""


class Listener(Protocol):
    """Follows questions and answers, as a log or a budget does."""

    def may_ask(self, question: Question) -> bool:
        """Return True if a question may be sent; if not, no later one is drawn either."""

    def heard(self, question: Question, answer: Answer, is_kept: bool) -> None:
        """Take an answer, kept before or new; a new one is kept only after this has returned."""


class CachedJudge:
    """A judge whose answers are durable one by one, whenever the process ends."""

    def __init__(self, judge: Judge, listener: Listener | None = None, cache: AnswerCache | None = None) -> None:
        """listener: sees each answer before it is kept, and may stop the questions. cache: default is the judge's own."""
        self.judge, self._listener = judge, listener
        self.identity = judge.identity
        self._name, self._terms, self._cache = ":".join(judge.identity), judge.terms, cache or AnswerCache(judge.terms.cache)
        self._asked, self._kept, self._silent = 0, 0, 0
        self._tokens, self._models = (0, 0), list[str]()
        self._statuses: Counter[str] = Counter()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer for each question, in their order; a question with a kept answer is not sent.

        Raises BudgetReached, JudgeChanged and JudgeUnavailable; the answers until then are kept.
        """
        answers = self.answers(questions)
        broken = [number for number, answer in enumerate(answers) if answer.status == "garbage" and answer.raw.strip()]
        repairs = self.answers([repaired(questions[number], answers[number]) for number in broken])
        for number, answer in zip(broken, repairs, strict=True):
            # without a repair the first answer stays
            answers[number] = answers[number] if answer.status in SILENT else answer
        self._statuses.update(answer.status for answer in answers)
        return answers

    @property
    def has_answered(self) -> bool:
        """True if the cache holds answers of this judge, from any process."""
        with self._cache.opened() as kept:
            return bool(kept.spent(self._name))

    def spent(self) -> Metrics:
        """Return counts of this process, and the cost of all answers of this judge."""
        counts = {
            "asked": self._asked,
            "kept": self._kept,
            "tokens": sum(self._tokens),
            "cost": self._terms.cost(*self._tokens),
        }
        return {f"judge/{name}": float(count) for name, count in counts.items()}

    def report(self) -> str:
        """Return a line with the share of each status in this process, and the cost."""
        with self._cache.opened() as kept:  # counts answers of other and earlier processes, too
            self._read_spent(kept)
        total = self._statuses.total()
        ends = ", ".join(f"{count} {status} ({count / total:.1%})" for status, count in self._statuses.most_common())
        models, cost = ", ".join(map(repr, self._models)) or "no model", self._terms.cost(*self._tokens)
        asked = f"{self._asked} asked now, {self._kept} known before, answered by {models}"
        return f"{self.identity[0]}: {ends or 'no answers'}; {asked}; {sum(self._tokens)} tokens in all, cost {cost:.4g}"

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer for each question as `ask` does, without repairs."""
        if not questions:
            return []
        keys = [hash_of(self._name.encode(), question.hash.encode()) for question in questions]
        pairs = dict(zip(keys, questions, strict=True))
        with self._cache.opened() as kept:
            found = kept.read(pairs)
            for key, answer in found.items():
                self._notify(pairs[key], answer, is_kept=True)
            self._kept += len(found)
            self._count(kept)
            pending = [key for key in pairs if key not in found]
            for number, answer in self.judge.ask(self._affordable([pairs[key] for key in pending])):
                found[pending[number]] = answer
                self._notify(pairs[pending[number]], answer, is_kept=False)
                self._keep(kept, pending[number], answer)
        if missing := len(pairs) - len(found):
            raise BudgetReached(
                f"The budget is spent, and {missing} of the questions at hand are not asked yet.",
                got=f"{sum(self._tokens)} tokens, cost {self._terms.cost(*self._tokens):.4g}",
                allowed=self._allowed(),
                fix="the same command with a larger budget goes on where this one stopped",
            )
        return [read(question, found[key]) for key, question in zip(keys, questions, strict=True)]

    def _affordable(self, pending: Sequence[Question]) -> Iterator[Question]:
        """Yield questions as long as the budget lasts; questions under way at its end are finished."""
        for question in pending:
            is_spent = 0 < self._terms.most_tokens <= sum(self._tokens)
            if is_spent or 0 < self._terms.most_cost <= self._terms.cost(*self._tokens):
                return
            if self._listener is not None and not self._listener.may_ask(question):
                return
            yield question

    def _notify(self, question: Question, answer: Answer, *, is_kept: bool) -> None:
        if self._listener is not None:
            self._listener.heard(question, answer, is_kept)

    def _keep(self, kept: Answers, key: str, answer: Answer) -> None:
        self._asked += 1
        if answer.status in SILENT:
            self._silent += 1
            if self._silent >= self._terms.unanswered:
                raise JudgeUnavailable(
                    f"{self._silent} questions in a row had no answer.",
                    got=f"{answer.status}: {answer.raw}",
                    fix="the same command goes on when the server is back; answers are kept",
                )
            return
        self._silent = 0
        kept.add(key, self._name, answer)
        self._count(kept)
        if self._terms.is_limited and not answer.prompt_tokens + answer.completion_tokens and answer.status == "ok":
            raise InvalidSetting(
                "The server does not say how many tokens it took, so that no budget can be kept.", fix="no budget"
            )

    def _count(self, kept: Answers) -> None:
        """Read the cost of this judge over all processes; raise JudgeChanged if two models answered as it."""
        self._read_spent(kept)
        if len(self._models) > 1 and not self._terms.mixed_models:
            raise JudgeChanged(
                f"Another model answers than before as {self.identity[0]}.",
                got=", ".join(map(repr, self._models)),
                allowed="one",
                fix="name a fixed version as the model; terms.mixed_models=true goes on with both",
            )

    def _read_spent(self, kept: Answers) -> None:
        spent = kept.spent(self._name)
        prompts, completions = zip(*spent.values(), strict=True) if spent else ((), ())
        self._tokens, self._models = (sum(prompts), sum(completions)), [*spent]

    def _allowed(self) -> str:
        parts = {"tokens": self._terms.most_tokens, "cost": self._terms.most_cost}
        return ", ".join(f"{name} {limit:g}" for name, limit in parts.items() if limit)


@dataclass(frozen=True, kw_only=True)
class WithJudge:
    """Settings of a component that uses a judge."""

    name: ClassVar[str]
    words: ClassVar[str]
    """The judge's prompt; another prompt is another reward."""

    judge: str = "endpoint"
    """Name of the judge: "endpoint" for any chat-completions server, "chance" for guesses; see also judge_settings."""
    judge_settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the judge, such as {model: gpt-4o-2024-11-20, base_url: "https://api.openai.com/v1", key_variable: KEY}."""

    @cached_property
    def asking(self) -> CachedJudge:
        """The judge behind its cache."""
        return CachedJudge(judge(self.judge, self.judge_settings))

    def ask_by(self, asking: CachedJudge) -> None:
        """Use another cached judge, such as one that is shared."""
        vars(self)["asking"] = asking  # the property's own place

    def identity_with(self, settings: Mapping[str, object]) -> tuple[str, str]:
        """Return a name that holds the judge's, and a hash of judge, words and all other settings."""
        own = {name: value for name, value in settings.items() if name not in ("judge", "judge_settings")}
        judge, judge_hash = self.asking.identity
        facts = json.dumps([judge_hash, self.words, own], sort_keys=True)
        return f"{self.name} by {judge}", hash_of(facts.encode())

    def spent(self) -> Metrics:
        """Return numbers of questions, and their cost."""
        return self.asking.spent()

    def report(self) -> str:
        """Return lines with questions, cost, and missing answers by reason."""
        return self.asking.report()
