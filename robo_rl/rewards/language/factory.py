"""Construction of a language model: a server, a file that names one, a pack of replies, or the log of an earlier run.

Replies of a judge, such as the endpoint of a server, are kept in the cache of all runs, within the budget of this one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robo_rl.entry_points import known
from robo_rl.errors import BudgetReached, InvalidSetting, JudgeUnavailable, UnknownName
from robo_rl.rewards.judges.cached_judge import SILENT, CachedJudge, nothing_usable
from robo_rl.rewards.judges.judge import Answer, Judge, Question, judge
from robo_rl.rewards.language.call_log import CallLog, LogSource, Record, spent
from robo_rl.rewards.language.conversation import Heard, Request
from robo_rl.rewards.language.model import LanguageModel
from robo_rl.rewards.language.packs import read_pack
from robo_rl.system.plain_files import read_yaml

MARGIN = 1.25
"""Safety factor on the largest number of tokens per byte so far, for the next question."""
FRAME = 32
"""Tokens that a server may put around a message."""


class Budget:
    """Counts the cost of the calls of a run, and reserves the largest cost of the next one.

    Until the server has counted once, a question has one token a byte: no tokenizer takes more.
    """

    def __init__(self, judge: Judge, records: list[Record]) -> None:
        """Take the limits from the judge's terms, and the cost so far from the run's log."""
        self._judge, self._terms = judge, judge.terms
        before = spent(records)
        self._tokens, self._cost = int(before["llm/tokens"]), before["llm/cost"]
        self._share: float | None = None
        self._reserved: dict[str, tuple[int, int]] = {}

    def reserve(self, question: Question) -> bool:
        """Return True, and reserve the cost, if the budget has it for an answer of any length."""
        if not self._terms.is_limited:
            return True
        most = self._longest_question(question), _longest_answer(self._judge, question)
        prompts, answers = (sum(each) for each in zip(most, *self._reserved.values(), strict=True))
        tokens, cost = self._tokens + prompts + answers, self._cost + self._terms.cost(prompts, answers)
        if 0 < self._terms.most_tokens < tokens or 0 < self._terms.most_cost < cost:
            return False
        self._reserved[question.hash] = most
        return True

    def pay(self, question: Question, answer: Answer) -> None:
        """Replace the reserved cost of an answer by its real one; raise InvalidSetting if the server does not count."""
        self._reserved.pop(question.hash, None)
        prompts, answers = answer.prompt_tokens, answer.completion_tokens
        self._tokens, self._cost = self._tokens + prompts + answers, self._cost + self._terms.cost(prompts, answers)
        self._share = max(self._share or 0.0, prompts / _bytes(question)) if prompts else self._share
        if self._terms.is_limited and answer.status == "ok" and not prompts + answers:
            raise InvalidSetting(
                "The server does not say how many tokens it took, so that no budget can be kept.", fix="no budget"
            )

    def release(self) -> None:
        """Release the reserved cost of questions that are no longer under way."""
        self._reserved.clear()

    def reached(self, missing: int) -> BudgetReached:
        """Return the error of a spent budget."""
        limits = {"tokens": self._terms.most_tokens, "cost": self._terms.most_cost}
        return BudgetReached(
            f"The next call could pass the budget of this run; {missing} of the replies at hand are not asked for.",
            got=f"{self._tokens} tokens, cost {self._cost:.4g}",
            allowed=", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit),
            fix="the same command with a larger terms.most_cost or terms.most_tokens goes on where this one stopped",
        )

    def _longest_question(self, question: Question) -> int:
        share = 1.0 if self._share is None else min(1.0, MARGIN * self._share)
        return math.ceil(_bytes(question) * share) + FRAME * (2 + len(question.turns))


def _longest_answer(judge: Any, question: Question) -> int:
    """Return the largest number of tokens of an answer."""
    limits = judge.request(question) if hasattr(judge, "request") else {"max_tokens": getattr(judge, "max_tokens", None)}
    most = limits.get("max_completion_tokens") or limits.get("max_tokens")
    if not isinstance(most, int):
        raise InvalidSetting("A budget needs a longest answer.", got=most, fix="set max_tokens, or no budget")
    return most


def _bytes(question: Question) -> int:
    said = [question.system, json.dumps(question.schema), *(words for _, words in question.turns), *question.parts]
    return sum(len(str(part).encode(errors="replace")) for part in said)


class JudgeSource:
    """Sends requests without a kept answer to a judge, several at once."""

    def __init__(self, judge: Judge, records: list[Record]) -> None:
        """records: of this run so far, whose cost counts for the budget."""
        self.identity, self._terms, self._judge, self._records = judge.identity, judge.terms, judge, records
        self._asking, self._budget = CachedJudge(_without_limits(judge), self), Budget(judge, records)
        self._pending: dict[str, Request] = {}
        self._callback: Heard | None = None
        self._has_answered = False

    def require_use(self, useless: Sequence[tuple[str, str]]) -> None:
        """Raise JudgeUnavailable if there are too many replies in a row without content; useless: their statuses and words."""
        if len(useless) >= self._terms.useless:
            raise nothing_usable(useless, self._judge)

    def require_key(self) -> None:
        """Raise JudgeUnavailable if a key is missing; none is needed while run or cache may have the answers."""
        require: Callable[[], object] | None = getattr(self._judge, "require_key", None)
        if require is not None and not self._records and not self._asking.has_answered:
            require()

    def answer(self, requests: Sequence[Request], heard: Heard) -> None:
        """Pass on each answer; raise BudgetReached, JudgeChanged, JudgeUnavailable after the answers until then."""
        questions = [request.prompt.question(request.sample) for request in requests]
        self._pending = {question.hash: request for question, request in zip(questions, requests, strict=True)}
        self._callback = heard
        try:
            answers = self._asking.answers(questions)
        except BudgetReached:
            raise self._budget.reached(len(self._pending)) from None
        finally:
            self._budget.release()
        self._require_an_answer(answers)

    def may_ask(self, question: Question) -> bool:
        """Reserve the largest cost of an answer, and return True if the budget has it."""
        return self._budget.reserve(question)

    def heard(self, question: Question, answer: Answer, is_kept: bool) -> None:
        """Pass an answer on to the log, and count its cost."""
        assert self._callback is not None, "a judge answers only the questions that it got"
        cost = self._terms.cost(answer.prompt_tokens, answer.completion_tokens)
        self._callback(self._pending.pop(question.hash), answer, "cache" if is_kept else "server", cost)
        if not is_kept:
            self._budget.pay(question, answer)

    def report(self) -> str:
        """Return an empty string: the log has it all."""
        return ""

    def _require_an_answer(self, answers: Sequence[Answer]) -> None:
        """Raise JudgeUnavailable if nothing was ever answered: the settings are wrong, or the server is not there."""
        if not self._has_answered and all(answer.status in SILENT for answer in answers):
            raise JudgeUnavailable(
                f"{self.identity[0]} has not answered even once.",
                got=f"{answers[0].status}: {answers[0].raw}",
                fix="look at the server, and at base_url and model; then the same command again",
            )
        self._has_answered = True


def _without_limits(judge: Any) -> Judge:
    """Return the judge without its budget, which would count the costs of other runs."""
    unlimited: Judge = replace(judge, terms=replace(judge.terms, most_tokens=0, most_cost=0.0))
    return unlimited


PACK = "pack:"
ENDPOINT = {"max_tokens": 4096, "timeout_s": 300.0, "deadline_s": 900.0}
"""Settings of an endpoint that writes programs, which are longer than verdicts; the user's settings override them."""


def language_model(
    llm: str, settings: Mapping[str, Any] | None = None, *, log: Path | None = None, replay: Path | None = None
) -> LanguageModel:
    """Return a language model; nothing is sent before the first request.

    llm: the name of a judge such as `endpoint` with its settings, a YAML file with `judge` and `settings`, or
    `pack:NAME_OR_FILE`; ignored if `replay` names a log that answers all requests. log: of this run, created or resumed.
    Raises UnknownName, InvalidSetting, JudgeError for a log that cannot be used, and JudgeUnavailable for a missing key if no
    answer is known yet.
    """
    if replay is not None:
        source = LogSource(replay)
        if log is not None and log.resolve() == replay.resolve():
            raise InvalidSetting("A run cannot be replayed into the log that answers it.", got=log, fix="another --out")
        return LanguageModel(source, CallLog(log))
    if llm.startswith(PACK):
        if settings:
            raise InvalidSetting("A pack takes no settings.", got=sorted(settings))
        return LanguageModel(read_pack(llm.removeprefix(PACK)), CallLog(log))
    name, settings = _named(llm, settings or {})
    if name not in known("judges"):
        raise UnknownName("language model", name, [*known("judges"), "pack:NAME", "FILE.yaml"])
    defaults = ENDPOINT if name == "endpoint" else {}
    asked: Any = judge(name, {**defaults, **settings})
    variable = getattr(asked, "key_variable", "")
    opened = CallLog(log)
    asking = JudgeSource(asked, opened.records)
    try:
        asking.require_key()
    except BaseException:
        opened.close()
        raise
    return LanguageModel(asking, opened, os.environ.get(variable, "").strip() if variable else "")


def require_task(llm: str, task: str) -> None:
    """Raise InvalidSetting if `llm` is a pack of replies for another environment than `task`, UnknownName for no pack."""
    if llm.startswith(PACK):
        read_pack(llm.removeprefix(PACK)).require(task)


def _named(llm: str, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return name and settings of a judge, read from a file if one is named."""
    if not llm.endswith((".yaml", ".yml")):
        return llm, settings
    found = read_yaml(Path(llm))
    if not isinstance(found, dict) or found.keys() - {"judge", "settings"} or not isinstance(found.get("settings") or {}, dict):
        got = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InvalidSetting(f"{llm} is not a language model.", got=got, allowed="the keys judge (endpoint) and settings")
    return str(found.get("judge", "endpoint")), {**(found.get("settings") or {}), **settings}
