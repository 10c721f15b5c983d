"""Client of all language and vision models: asks no question twice, reads answers strictly, keeps budget, log and store.

Judges, writers of programs, annotators and teachers ask through it. An unusable answer is corrected once. Each answer is
durable before the next one is used, whenever the process ends: in the store, which all runs and models share, and in the log of
the run if it has one.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, Self

from robo_rl.errors import BudgetReached, InvalidSetting, JudgeChanged, JudgeUnavailable, printable
from robo_rl.rewards.chat.log import ENDED, CallLog, account, answer_in, record_of, spent
from robo_rl.rewards.chat.models import ChatModel, Paid, Reporting, Terms
from robo_rl.rewards.chat.question import FINGERPRINT, Answer, Question, broken_by, corrected, read, restated
from robo_rl.rewards.chat.store import Answers, AnswerStore
from robo_rl.rewards.identity import hash_of
from robo_rl.types import Metrics

SILENT = ("unreachable", "too many requests", "not accepted", "out of replies")
"""Statuses of a question that got no answer; they are not stored, so that the question is sent again another time."""
USELESS = {
    "cut": "answers end at max_tokens{limit}: allow more, or take a model that thinks less",
    "garbage": "look at an answer, then another model or another response_format",
    "refused": "another model, or other words for the task",
}
"""Status of a stored answer without usable content -> remedy."""
SHOWN = 200
"""Largest number of characters of an unusable answer that an error message shows."""
NOT_COUNTED = "The server does not say how many tokens it took, so that no budget can be kept."


class Budget(Protocol):
    """Interface of a budget: decides whether questions may be sent, and counts the cost of their answers."""

    def may_ask(self, question: Question) -> bool:
        """Return True if a question may be sent; after False no later question is sent either."""

    def heard(self, question: Question, answer: Answer) -> None:
        """Count the cost of the answer to a question that was sent."""

    def release(self) -> None:
        """Release the reservations of questions that are no longer being answered."""

    def reached(self, missing: int) -> BudgetReached:
        """Make the error for a spent budget; missing: number of questions that are not sent."""


class ModelClient:
    """Asks questions of one model, with a store of answers and a budget; threads may share it, one call runs at a time."""

    def __init__(
        self,
        model: ChatModel,
        *,
        log: CallLog | None = None,
        store: AnswerStore | None = None,
        budget: Budget | None = None,
        secret: str = "",
        replays: bool = False,
    ) -> None:
        """Prepare the client; nothing is sent.

        Args:
            model: Model to ask.
            log: Log of a run, from which a resumed run takes its answers.
            store: Store of answers; None for that of the model's terms.
            budget: Budget; None for the limits of the model's terms, over all answers in the store.
            secret: Text, such as a key, that is removed from answers and log.
            replays: True to send nothing; a question without a stored answer is missing.
        """
        self.model, self.identity = model, model.identity
        self._name, self._log, self._secret = ":".join(model.identity), log, secret
        self._replays = replays
        self.terms = model.terms if isinstance(model, Paid) else None
        self._store = store or (AnswerStore(self.terms.cache) if self.terms else None)
        self._budget = budget or StoreBudget(self.terms or Terms())
        self._asked = self._known = self._silent = 0
        self._has_answered = False
        self._useless = list[Answer]()
        """New answers without content since the last one that had some."""
        self._tokens, self._models = (0, 0), list[str]()
        self._statuses: Counter[str] = Counter()
        self._lock = threading.RLock()
        self.watch: Callable[[str], None] | None = None
        """Called with a line on each request to a server and of each answer of a run: a reply may take minutes."""
        self._rounds: dict[str, dict[str, int]] = {}
        for record in log.records if log else ():
            if record["settings"] == self.identity[1]:
                self._rounds.setdefault(record["purpose"], {}).setdefault(record["request"], record["round"])

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer for each question, in order; a question with a stored answer is not sent.

        If an answer has the wrong form, the model is asked once to correct it. Answers until an error are stored.

        Raises:
            BudgetReached: The budget allows no further question.
            JudgeChanged: Another model answers than before, by its own name.
            JudgeUnavailable: The model does not answer, or has given `terms.useless` unusable answers in a row.
            NotInLog: A replayed log has no answer to a question.
        """
        if not questions:
            return []
        with self._lock:
            asked = _Asked(list(map(self._numbered, questions)), self._repaired)
            with self._opened() as kept:
                self._take_known(kept, asked, [*asked.waiting])
                self._count(kept)
                while asked.waiting:
                    self._send(kept, asked)
            answers = asked.answers()
            self._statuses.update(answer.status for answer in answers)
            return answers

    def sample(self, question: Question, n: int = 1, first: int = 0) -> list[Answer]:
        """Return n independent answers to a question, with the sample numbers first to first + n - 1.

        The same numbers always give the same answers. Raises the errors of `ask`, and InvalidSetting for several samples at
        temperature 0.
        """
        if n < 1 or first < 0 or (first + n > 1 and not question.temperature):
            raise InvalidSetting(
                "This number of samples is not possible.",
                got=f"n={n}, first={first}, temperature={question.temperature}",
                allowed="n from 1, first from 0; at temperature 0 one sample, because all are the same",
            )
        return self.ask([replace(question, sample=sample) for sample in range(first, first + n)])

    @property
    def has_answered(self) -> bool:
        """True if the store has answers of this model, from any process."""
        with self._opened() as kept:
            return bool(kept and kept.spent(self._name))

    @property
    def statuses(self) -> Counter[str]:
        """Status -> number of answers in the run, or without a log in this process."""
        if self._log is None:
            return self._statuses
        return Counter(str(record["status"]) for record in [*self._log.records] if record["status"] != ENDED)

    def spent(self) -> Metrics:
        """Return numbers of questions, tokens and cost, for the log: those of the run, or without a log of this process."""
        if self._log is not None:
            return spent([*self._log.records])
        tokens = sum(self._tokens)
        counts = {"asked": self._asked, "kept": self._known, "tokens": tokens, "cost": self._cost(*self._tokens)}
        return {f"judge/{name}": float(count) for name, count in counts.items()}

    def report(self) -> str:
        """Return text on the questions asked, their cost and the share of each status."""
        if self._log is not None:
            torn = f"the last line of {self._log.path} was torn and left out" if self._log.torn else ""
            own = self.model.report() if isinstance(self.model, Reporting) else ""
            return "\n".join(filter(None, [account([*self._log.records]), own, torn]))
        with self._opened() as kept:  # counts answers of other and earlier processes, too
            self._read_spent(kept)
        total = self._statuses.total()
        ends = ", ".join(f"{count} {status} ({count / total:.1%})" for status, count in self._statuses.most_common())
        models, cost = ", ".join(map(repr, self._models)) or "no model", self._cost(*self._tokens)
        drift = "" if len(self._models) < 2 else " (the model or its system has changed: the answers may be of two kinds)"
        asked = f"{self._asked} asked now, {self._known} known before, answered by {models}{drift}"
        return f"{self.identity[0]}: {ends or 'no answers'}; {asked}; {sum(self._tokens)} tokens in all, cost {cost:.4g}"

    def close(self) -> None:
        """Release the log for other processes; further questions raise an error."""
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __deepcopy__(self, memo: object) -> ModelClient:
        return self  # a run has one log

    # -- one question's way: log, store, model; then log, store
    def _send(self, kept: Answers | None, asked: _Asked) -> None:
        """Send the waiting questions as far as the budget allows, and process the answers."""
        if self._replays:
            if not asked.has_answers:
                raise JudgeUnavailable(
                    f"None of these {len(asked.waiting)} questions has a kept answer.", fix="without --replay they are asked"
                )
            asked.leave(Answer("unreachable", text="it has no kept answer, and nothing is sent"))
            return
        sent, new = list[Question](), list[Answer]()
        if self.terms is not None:
            purposes = Counter(question.purpose for question in asked.waiting)
            self._tell(", ".join(f"{count} x {purpose}" for purpose, count in purposes.items()) + " under way")
        try:
            for number, answer in self.model.ask(self._affordable(asked, sent)):
                new.append(self._taken(kept, asked, sent[number], answer))
            if not (sent or asked.is_useless):
                raise self._budget.reached(len(asked.waiting))
        except BudgetReached as error:
            if self._log is not None:
                self._log.add(self._record(asked.first_open(sent), Answer("ok", text=str(error))) | {"status": ENDED})
            raise
        finally:
            self._budget.release()
        if asked.is_useless:
            useless, self._useless = self._useless, []
            raise self._nothing_usable(useless)
        if self._log is not None and not self._has_answered and all(answer.status in SILENT for answer in new) and self.terms:
            raise JudgeUnavailable(
                f"{self.identity[0]} has not answered even once.",
                got=f"{new[0].status}: {new[0].text}",
                fix="look at the server, and at base_url and model; then the same command again",
            )
        self._has_answered = True

    def _affordable(self, asked: _Asked, sent: list[Question]) -> Iterator[Question]:
        """Yield questions as long as the budget allows; questions already sent are finished."""
        while asked.waiting and not asked.is_useless and self._budget.may_ask(asked.waiting[0]):
            sent.append(asked.waiting.popleft())
            yield sent[-1]

    def _taken(self, kept: Answers | None, asked: _Asked, question: Question, answer: Answer) -> Answer:
        """Log, store and read a new answer; return it."""
        cost = answer.cost or self._cost(answer.prompt_tokens, answer.completion_tokens)
        answer = replace(
            answer, text=self._clean(answer.text), model=self._clean(answer.model), cost=cost, sample=question.sample or 0
        )
        self._write(question, answer)
        self._budget.heard(question, answer)
        self._keep(kept, question, answer)
        final = asked.take(question, answer)
        if final is None:
            self._take_known(kept, asked, [asked.waiting[0]])  # the repair may be there from a command that was killed
        elif self.terms is not None and final.status in USELESS:
            self._useless.append(final)
            asked.is_useless |= len(self._useless) >= self.terms.useless
        elif final.status == "ok":
            self._useless.clear()
        return answer

    def _take_known(self, kept: Answers | None, asked: _Asked, waiting: Sequence[Question]) -> None:
        """Process stored answers to waiting questions, and to the repairs of these."""
        while known := {question.hash: answer for question in waiting if (answer := self._find(kept, question)) is not None}:
            answered = [question for question in waiting if question.hash in known]
            asked.waiting = deque(each for each in asked.waiting if each.hash not in known)
            waiting = [asked.waiting[0] for each in answered if asked.take(each, known[each.hash]) is None]

    def _find(self, kept: Answers | None, question: Question) -> Answer | None:
        """Return the answer in the log, or that in the store, which is then written to the log."""
        sample = question.sample or 0
        if self._log is not None:
            record = self._log.find(self.identity[1], question.request, sample)
            if record is not None and record["status"] not in (*SILENT, ENDED):
                return answer_in(record)
        if kept is None or not (found := kept.read([key := self._key(question)])):
            return None
        self._known += 1
        answer = found[key]
        cost = self._cost(answer.prompt_tokens, answer.completion_tokens)
        answer = replace(answer, cost=cost, sample=sample, origin="cache")
        self._write(question, answer)
        return answer

    def _write(self, question: Question, answer: Answer) -> None:
        if self._log is None:
            return
        record = self._record(question, answer)
        self._log.add(record)
        if answer.origin == "server":
            status, tokens = record["status"], answer.completion_tokens
            self._tell(f"{question.purpose}: {status} after {answer.seconds:.0f} s, {tokens} tokens")

    def _record(self, question: Question, answer: Answer) -> dict[str, Any]:
        messages = [{"role": each.role, "text": self._clean(each.text)} for each in question.messages]
        return record_of(question, messages, answer, self.identity)

    def _keep(self, kept: Answers | None, question: Question, answer: Answer) -> None:
        """Store an answer.

        Raise an error if too many questions had no answer, another model answered, or tokens were not counted.
        """
        if kept is None or self.terms is None:
            return
        self._asked += 1
        if answer.status in SILENT:
            self._silent += 1
            if self._silent >= self.terms.unanswered:
                raise JudgeUnavailable(
                    f"{self._silent} questions in a row had no answer.",
                    got=f"{answer.status}: {answer.text}",
                    fix="the same command goes on when the server is back; answers are kept",
                )
            return
        self._silent = 0
        kept.add(self._key(question), self._name, answer)
        self._count(kept)
        if self.terms.is_limited and not answer.prompt_tokens + answer.completion_tokens and answer.status == "ok":
            raise InvalidSetting(NOT_COUNTED, fix="no budget")

    def _count(self, kept: Answers | None) -> None:
        """Read the cost of this model over all processes; raises JudgeChanged if two models have answered under its name."""
        self._read_spent(kept)
        names = {model.partition(FINGERPRINT)[0] for model in self._models}
        if len(names) > 1 and self.terms is not None and not self.terms.mixed_models:
            raise JudgeChanged(
                f"Another model answers than before as {self.identity[0]}.",
                got=", ".join(map(repr, self._models)),
                allowed="one",
                fix="name a fixed version as the model; terms.mixed_models=true goes on with both",
            )

    def _read_spent(self, kept: Answers | None) -> None:
        found = kept.spent(self._name) if kept else {}
        prompts, completions = zip(*found.values(), strict=True) if found else ((), ())
        self._tokens, self._models = (sum(prompts), sum(completions)), [*found]
        if isinstance(self._budget, StoreBudget):
            self._budget.tokens = self._tokens

    def _nothing_usable(self, useless: Sequence[Answer]) -> JudgeUnavailable:
        assert self.terms is not None, "only a model with terms has a limit"
        statuses = Counter[str](answer.status for answer in useless)
        return JudgeUnavailable(
            f"{statuses.total()} answers in a row were of no use: {counted(statuses)}.",
            got=f"the last one: {printable(useless[-1].text, SHOWN) or 'nothing'}",
            allowed=f"less than terms.useless = {self.terms.useless} in a row",
            fix=f"{remedy(statuses, self.model)}. These answers are kept; the same command goes on with the next question",
        )

    def _numbered(self, question: Question) -> Question:
        """Return a question of a run with the numbers of its round and sample."""
        if self._log is None:
            return question
        known = self._rounds.setdefault(question.purpose, {})
        return replace(question, sample=question.sample or 0, round=known.setdefault(question.request, len(known)))

    def _repaired(self, question: Question, answer: Answer) -> Question | None:
        """Return the question that asks for a correction of an answer; None if its form is right."""
        assert question.form is not None, "free words are never wrong"
        problem = broken_by(question.form, answer.text)
        if not problem:
            return None
        if self._log is None:
            return restated(question, answer, problem)
        return self._numbered(corrected(question, answer, problem))

    @contextmanager
    def _opened(self) -> Iterator[Answers | None]:
        if self._store is None:
            yield None
            return
        with self._store.opened() as kept:
            yield kept

    def _key(self, question: Question) -> str:
        return hash_of(self._name.encode(), question.hash.encode())

    def _cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return self.terms.cost(prompt_tokens, completion_tokens) if self.terms else 0.0

    def _clean(self, words: str) -> str:
        return words.replace(self._secret, "[key]") if self._secret else words

    def _tell(self, line: str) -> None:
        if self.watch is not None:
            self.watch(f"{self.identity[0]}: {line}")


class _Asked:
    """Questions of one call of `ask`: those that wait, and the answers so far."""

    def __init__(self, questions: Sequence[Question], repair: Callable[[Question, Answer], Question | None]) -> None:
        self._questions, self._repair = questions, repair
        self.waiting = deque({question.hash: question for question in questions}.values())
        self.is_useless = False
        self._found: dict[str, Answer] = {}
        """Hash of a question -> its answer, read."""
        self._repaired: dict[str, str] = {}
        """Hash of a repair under way -> that of its question."""

    def answers(self) -> list[Answer]:
        """Return the answers in the order of the questions."""
        return [self._found[question.hash] for question in self._questions]

    @property
    def has_answers(self) -> bool:
        """True if any question has an answer, usable or not."""
        return bool(self._found)

    def leave(self, answer: Answer) -> None:
        """Give every waiting question the same missing answer."""
        while self.waiting:
            self.take(self.waiting.popleft(), answer)

    def first_open(self, sent: Sequence[Question]) -> Question:
        """Return the first question without an answer, among those that were sent or wait."""
        return next(question for question in (*sent, *self.waiting) if question.hash not in self._found)

    def take(self, question: Question, answer: Answer) -> Answer | None:
        """Process an answer.

        Return the final answer to its question, or None if a repair of it now waits as the next question.
        """
        answer = read(question, replace(answer, request=question.request))
        if (first := self._repaired.pop(question.hash, None)) is not None:
            if answer.status not in SILENT:  # without a repair the first answer stays
                self._found[first] = answer
            return self._found[first]
        self._found[question.hash] = answer
        if answer.status != "garbage" or question.form is None or not answer.text.strip():
            return answer
        again = self._repair(question, answer)
        if again is None:
            return answer
        self._repaired[again.hash] = question.hash
        self.waiting.appendleft(again)
        return None


class StoreBudget:
    """Budget with the limits of a model over all of its answers in a store, from all runs."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.tokens = (0, 0)
        """Tokens of all questions and of all answers, as the client counts them."""

    def may_ask(self, question: Question) -> bool:
        """Return True until a limit is reached."""
        spent = 0 < self._terms.most_tokens <= sum(self.tokens)
        return not (spent or 0 < self._terms.most_cost <= self._terms.cost(*self.tokens))

    def heard(self, question: Question, answer: Answer) -> None:
        """Do nothing: the store counts the cost."""

    def release(self) -> None:
        """Do nothing: nothing was reserved."""

    def reached(self, missing: int) -> BudgetReached:
        """Make the error for a spent budget; missing: number of questions that are not sent."""
        return BudgetReached(
            f"The budget is spent, and {missing} of the questions at hand are not asked yet.",
            got=f"{sum(self.tokens)} tokens, cost {self._terms.cost(*self.tokens):.4g}",
            allowed=self._terms.limits,
            fix="the same command with a larger budget goes on where this one stopped",
        )


def counted(statuses: Mapping[str, int]) -> str:
    """Return a text with each status of answers and its number, the most frequent first."""
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).most_common())


def remedy(statuses: Mapping[str, int], model: object = None) -> str:
    """Return the remedy, in words, for the most frequent unusable status of answers; "" if there is none."""
    found = [status for status, _ in Counter(statuses).most_common() if status in USELESS]
    limit = getattr(model, "max_tokens", None)
    return USELESS[found[0]].format(limit=f" = {limit}" if limit else "") if found else ""
