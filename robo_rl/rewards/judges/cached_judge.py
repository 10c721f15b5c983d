"""Judge with a durable cache: no question twice, strict reading, one repair at most, and a budget."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

from robo_rl.errors import BudgetReached, InvalidSetting, JudgeChanged, JudgeUnavailable, printable
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judges.answer_cache import AnswerCache, Answers
from robo_rl.rewards.judges.judge import FINGERPRINT, Answer, Judge, Question, judge, read, repaired
from robo_rl.types import Metrics

SILENT = ("unreachable", "too many requests", "not accepted")
"""Statuses without an answer: not kept, so that the question is sent again another time."""
USELESS = {
    "cut": "answers end at max_tokens{limit}: allow more, or take a model that thinks less",
    "garbage": "look at an answer, then another model or another response_format",
    "refused": "another model, or other words for the task",
}
"""Status of an answer that is kept and has no content -> remedy."""
SHOWN = 200
"""Characters shown of a useless answer."""


def counted(statuses: Mapping[str, int]) -> str:
    """Return statuses with their numbers, the most frequent first."""
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).most_common())


def remedy(statuses: Mapping[str, int], judge: object = None) -> str:
    """Return the remedy of the most frequent useless status; empty if there is none."""
    found = [status for status, _ in Counter(statuses).most_common() if status in USELESS]
    limit = getattr(judge, "max_tokens", None)
    return USELESS[found[0]].format(limit=f" = {limit}" if limit else "") if found else ""


def nothing_usable(useless: Sequence[tuple[str, str]], judge: Judge) -> JudgeUnavailable:
    """Return the error of too many answers in a row without content; useless: their statuses and words."""
    statuses = Counter(status for status, _ in useless)
    return JudgeUnavailable(
        f"{statuses.total()} answers in a row were of no use: {counted(statuses)}.",
        got=f"the last one: {printable(useless[-1][1], SHOWN) or 'nothing'}",
        allowed=f"less than terms.useless = {judge.terms.useless} in a row",
        fix=f"{remedy(statuses, judge)}. These answers are kept; the same command goes on with the next question",
    )


class _Asked:
    """Questions of one call: those that wait, and the answers so far."""

    def __init__(self, questions: Sequence[Question], *, repairs: bool) -> None:
        """repairs: ask once more for an answer of the wrong form."""
        self.waiting = deque({question.hash: question for question in questions}.values())
        self.found: dict[str, Answer] = {}
        """Hash of a question -> its answer, read."""
        self.repairs, self.is_useless = repairs, False
        self._repaired: dict[str, str] = {}
        """Hash of a repair under way -> that of its question."""

    def take(self, question: Question, answer: Answer) -> Answer | None:
        """Take an answer and return the final one of its question; None if a repair of it now waits, first in the row."""
        answer = read(question, answer)
        if (first := self._repaired.pop(question.hash, None)) is not None:
            if answer.status not in SILENT:  # without a repair the first answer stays
                self.found[first] = answer
            return self.found[first]
        self.found[question.hash] = answer
        if not self.repairs or answer.status != "garbage" or not answer.raw.strip():
            return answer
        again = repaired(question, answer)
        self._repaired[again.hash] = question.hash
        self.waiting.appendleft(again)
        return None


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
        self._useless = list[Answer]()
        """New answers without content since the last one that had some."""
        self._tokens, self._models = (0, 0), list[str]()
        self.statuses: Counter[str] = Counter()
        """Status -> number of answers in this process, known ones among them, after repairs."""

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer for each question, in their order; a question with a kept answer is not sent.

        An answer of the wrong form is asked for once more. Raises BudgetReached, JudgeChanged and JudgeUnavailable, which also
        comes after `terms.useless` new answers in a row without content; the answers until then are kept.
        """
        return self._answered(questions, repairs=True)

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
        total = self.statuses.total()
        ends = ", ".join(f"{count} {status} ({count / total:.1%})" for status, count in self.statuses.most_common())
        models, cost = ", ".join(map(repr, self._models)) or "no model", self._terms.cost(*self._tokens)
        drift = "" if len(self._models) < 2 else " (the model or its system has changed: the answers may be of two kinds)"
        asked = f"{self._asked} asked now, {self._kept} known before, answered by {models}{drift}"
        return f"{self.identity[0]}: {ends or 'no answers'}; {asked}; {sum(self._tokens)} tokens in all, cost {cost:.4g}"

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer for each question as `ask` does, without repairs and however useless."""
        return self._answered(questions, repairs=False)

    def _answered(self, questions: Sequence[Question], *, repairs: bool) -> list[Answer]:
        if not questions:
            return []
        asked = _Asked(questions, repairs=repairs)
        with self._cache.opened() as kept:
            self._take_known(kept, asked, [*asked.waiting])
            self._count(kept)
            while asked.waiting:
                sent = list[Question]()
                for number, answer in self.judge.ask(self._affordable(asked, sent)):
                    self._notify(sent[number], answer, is_kept=False)
                    self._keep(kept, self._key(sent[number]), answer)
                    self._take_new(kept, asked, sent[number], answer)
                if asked.is_useless:
                    useless, self._useless = self._useless, []
                    raise nothing_usable([(answer.status, answer.raw) for answer in useless], self.judge)
                if not sent:
                    raise self._spent(len(asked.waiting))
        answers = [asked.found[question.hash] for question in questions]
        self.statuses.update(answer.status for answer in answers)
        return answers

    def _key(self, question: Question) -> str:
        return hash_of(self._name.encode(), question.hash.encode())

    def _take_known(self, kept: Answers, asked: _Asked, waiting: Sequence[Question]) -> None:
        """Take the answers on disk to some of the questions that wait, and then those to the repairs of these."""
        while known := kept.read(map(self._key, waiting)):
            answered = {each.hash: each for each in waiting if self._key(each) in known}
            asked.waiting = deque(each for each in asked.waiting if each.hash not in answered)
            waiting = []
            for question in answered.values():
                answer = known[self._key(question)]
                self._notify(question, answer, is_kept=True)
                self._kept += 1
                if asked.take(question, answer) is None:
                    waiting.append(asked.waiting[0])

    def _take_new(self, kept: Answers, asked: _Asked, question: Question, answer: Answer) -> None:
        final = asked.take(question, answer)
        if final is None:
            self._take_known(kept, asked, [asked.waiting[0]])  # the repair may be there from a command that was killed
        elif asked.repairs and final.status in USELESS:
            self._useless.append(final)
            asked.is_useless |= len(self._useless) >= self._terms.useless
        elif final.status == "ok":
            self._useless.clear()

    def _affordable(self, asked: _Asked, sent: list[Question]) -> Iterator[Question]:
        """Yield questions as long as the budget lasts; questions under way at its end are finished."""
        while asked.waiting and not asked.is_useless:
            question = asked.waiting[0]
            is_spent = 0 < self._terms.most_tokens <= sum(self._tokens)
            if is_spent or 0 < self._terms.most_cost <= self._terms.cost(*self._tokens):
                return
            if self._listener is not None and not self._listener.may_ask(question):
                return
            sent.append(asked.waiting.popleft())
            yield question

    def _spent(self, missing: int) -> BudgetReached:
        return BudgetReached(
            f"The budget is spent, and {missing} of the questions at hand are not asked yet.",
            got=f"{sum(self._tokens)} tokens, cost {self._terms.cost(*self._tokens):.4g}",
            allowed=self._allowed(),
            fix="the same command with a larger budget goes on where this one stopped",
        )

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
        if len({model.partition(FINGERPRINT)[0] for model in self._models}) > 1 and not self._terms.mixed_models:
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
