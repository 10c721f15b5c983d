"""Ask a judge with care: nothing twice, answers read strictly, one repair at most, and no more than the budget allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from robo_rl.errors import BudgetReached, InvalidSetting, JudgeChanged, JudgeUnavailable
from robo_rl.rewards.answer_cache import AnswerCache
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judging import Answer, Judge, Question, judge
from robo_rl.rewards.strict_answers import read, repaired
from robo_rl.types import Metrics

SILENT = ("unreachable", "too many requests")
"""No answer at all: not kept, so that the question is asked again another time."""


class CachedJudge:
    """A judge whose answers are durable one by one, whenever the process ends."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.identity = judge.identity
        self._name, self._terms, self._cache = ":".join(judge.identity), judge.terms, AnswerCache(judge.terms.cache)
        self._asked, self._kept, self._silent = 0, 0, 0
        self._models: Collection[str] = ()
        self._statuses: Counter[str] = Counter()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Returns one answer for each question, in their order; whoever has an answer already is not asked.

        Raises BudgetReached, JudgeChanged and JudgeUnavailable; the answers until then are kept.
        """
        answers = self._answers(questions)
        broken = [number for number, answer in enumerate(answers) if answer.status == "garbage" and answer.raw.strip()]
        repairs = self._answers([repaired(questions[number], answers[number]) for number in broken])
        for number, answer in zip(broken, repairs, strict=True):
            # a repair that never came leaves the first answer what it is
            answers[number] = answers[number] if answer.status in SILENT else answer
        self._statuses.update(answer.status for answer in answers)
        return answers

    def spent(self) -> Metrics:
        """Returns what was asked and found by this process, and what all answers of this judge have cost."""
        tokens = self._tokens()
        counts = {
            "judge/asked": self._asked,
            "judge/kept": self._kept,
            "judge/tokens": sum(tokens),
            "judge/cost": self._terms.cost(*tokens),
        }
        return {name: float(count) for name, count in counts.items()}

    @property
    def statuses(self) -> Mapping[str, int]:
        """How often which status was the end of a question in this process."""
        return dict(self._statuses)

    def _answers(self, questions: Sequence[Question]) -> list[Answer]:
        keys = [hash_of(self._name.encode(), question.hash.encode()) for question in questions]
        found = self._cache.read(dict.fromkeys(keys))
        self._kept += len(found)
        self._require_one_model()
        pending = {key: question for key, question in zip(keys, questions, strict=True) if key not in found}
        order = [*pending]
        for number, answer in self.judge.ask(self._affordable(pending)):
            self._keep(order[number], answer)
            found[order[number]] = answer
        if missing := len(pending.keys() - found.keys()):
            raise BudgetReached(
                f"The budget is spent, and {missing} of the questions at hand are not asked yet.",
                got=self._told(),
                allowed=self._allowed(),
                fix="the same command with a larger budget goes on where this one stopped",
            )
        return [read(question, found[key]) for key, question in zip(keys, questions, strict=True)]

    def _affordable(self, pending: Mapping[str, Question]) -> Iterator[Question]:
        """Yields questions as long as the budget lasts; what is under way when it is reached is finished."""
        for question in pending.values():
            tokens, terms = self._tokens() if self._terms.is_limited else (0, 0), self._terms
            if (terms.most_tokens and sum(tokens) >= terms.most_tokens) or (
                terms.most_cost and terms.cost(*tokens) >= terms.most_cost
            ):
                return
            yield question

    def _keep(self, key: str, answer: Answer) -> None:
        self._asked += 1
        if answer.status in SILENT:
            self._silent += 1
            if self._silent >= self._terms.unanswered:
                raise JudgeUnavailable(
                    f"{self._silent} questions in a row had no answer.",
                    got=f"{answer.status}: {answer.raw}",
                    fix="the same command goes on when the server is back; what was answered is kept",
                )
            return
        self._silent = 0
        self._cache.add(key, self._name, answer)
        if answer.model not in self._models:
            self._require_one_model()
        if self._terms.is_limited and not answer.prompt_tokens + answer.completion_tokens and answer.status == "ok":
            raise InvalidSetting(
                "The server does not say how many tokens it took, so that no budget can be kept.", fix="no budget"
            )

    def _require_one_model(self) -> None:
        self._models = models = self._cache.spent(self._name).keys()
        if len(models) > 1 and not self._terms.mixed_models:
            raise JudgeChanged(
                f"Another model answers than before as {self.identity[0]}.",
                got=", ".join(repr(model) for model in models),
                allowed="one",
                fix="name a fixed version as the model; terms.mixed_models=true goes on with both",
            )

    def _tokens(self) -> tuple[int, int]:
        spent = self._cache.spent(self._name).values()
        return sum(prompt for prompt, _ in spent), sum(completion for _, completion in spent)

    def _told(self) -> str:
        tokens = self._tokens()
        return f"{sum(tokens)} tokens, cost {self._terms.cost(*tokens):.4g}"

    def _allowed(self) -> str:
        parts = {"tokens": self._terms.most_tokens, "cost": self._terms.most_cost}
        return ", ".join(f"{name} {limit:g}" for name, limit in parts.items() if limit)


def cached_judge(name: str, settings: Mapping[str, Any]) -> CachedJudge:
    """Returns a judge by its name, asked with care; raises UnknownName, and InvalidSetting naming the setting."""
    return CachedJudge(judge(name, settings))
