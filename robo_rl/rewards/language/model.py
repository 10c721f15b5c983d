"""Language model of the methods: prompts in, replies out, every call in the log of the run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from robo_rl.errors import BudgetReached, InvalidSetting
from robo_rl.rewards.judges.cached_judge import SILENT, USELESS
from robo_rl.rewards.judges.judge import REFUSAL, Answer, broken_by, read
from robo_rl.rewards.language.call_log import ENDED, CallLog, Record, account, answer_in, spent
from robo_rl.rewards.language.conversation import REPAIR, Limited, Origin, Prompt, Reply, ReplySource, Request
from robo_rl.types import Metrics

NOT_KEPT = (*SILENT, "out of replies", ENDED)
"""Statuses without an answer: requested again in another run of the command."""
SHOWN = 8000
"""Characters of a wrong answer that the model sees again."""


class LanguageModel:
    """Answers prompts from the run's log, else from its source; threads may share it, one call at a time."""

    def __init__(self, source: ReplySource, log: CallLog, secret: str = "") -> None:
        """secret: text that no line of the log may show."""
        self.identity = source.identity
        self._source, self._log, self._secret = source, log, secret
        self._useless = list[tuple[str, str]]()
        """Status and words of new replies without content since the last one that had some."""
        self.watch: Callable[[str], None] | None = None
        """Called with a line on each request to a server and of each answer: a reply may take minutes."""
        self._rounds: dict[str, dict[str, int]] = {}
        self._lock = threading.RLock()
        for record in log.records:
            if record["settings"] == self.identity[1]:
                self._rounds.setdefault(record["purpose"], {}).setdefault(record["request"], record["round"])

    def sample(self, prompt: Prompt, n: int = 1, first: int = 0) -> list[Reply]:
        """Return n independent replies to a prompt, the samples first to first + n - 1: always the same ones in one run.

        A missing reply has a status. Raises BudgetReached, JudgeUnavailable, JudgeChanged or NotInLog if there can be no more;
        the answers until then are in the log, and the same command goes on from there.
        """
        if n < 1 or first < 0 or (first + n > 1 and not prompt.temperature):
            raise InvalidSetting(
                "This number of samples is not possible.",
                got=f"n={n}, first={first}, temperature={prompt.temperature}",
                allowed="n from 1, first from 0; at temperature 0 one sample, because all are the same",
            )
        return self._asked([(prompt, sample) for sample in range(first, first + n)])

    def ask(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return one reply to each of several prompts, which are under way together. Raises the errors of `sample`."""
        return self._asked([(prompt, 0) for prompt in prompts])

    def spent(self) -> Metrics:
        """Return the number of replies of the run, of paid ones, and their tokens and cost; waits for no thread."""
        return spent([*self._log.records])

    @property
    def statuses(self) -> Counter[str]:
        """Status -> replies of the run, repairs and the repaired ones apart; waits for no thread."""
        return Counter(str(record["status"]) for record in [*self._log.records] if record["status"] != ENDED)

    def report(self) -> str:
        """Return lines with requests and costs of the run; waits for no thread."""
        torn = f"the last line of {self._log.path} was torn and left out" if self._log.torn else ""
        return "\n".join(filter(None, [account([*self._log.records]), self._source.report(), torn]))

    def close(self) -> None:
        """Release the log to other processes; new requests raise."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __deepcopy__(self, memo: object) -> LanguageModel:
        return self  # a run has one log

    def _asked(self, wanted: Sequence[tuple[Prompt, int]]) -> list[Reply]:
        with self._lock:
            requests = [self._request(prompt, sample) for prompt, sample in wanted]
            new = [number for number, request in enumerate(requests) if not self._is_answered(request)]
            replies = self._replies(requests)
            pairs = [*enumerate(zip(requests, replies, strict=True))]
            repairs = {number: self._repair(*pair) for number, pair in pairs if _is_broken(*pair)}
            for number, reply in zip(repairs, self._replies([*repairs.values()]), strict=True):
                # without a repair the first reply stays
                replies[number] = replies[number] if reply.status in NOT_KEPT else reply
            self._require_use([replies[number] for number in new])
            return replies

    def _require_use(self, replies: Sequence[Reply]) -> None:
        """Count new replies of no use; raise the error of a source that has a limit of them."""
        for reply in replies:
            if reply.status == "ok":
                self._useless.clear()
            elif reply.status in USELESS:
                self._useless.append((reply.status, reply.text))
        if isinstance(self._source, Limited):
            self._source.require_use(self._useless)

    def _replies(self, requests: Sequence[Request]) -> list[Reply]:
        """Return the logged replies, and request the others."""
        pending = {(each.prompt.hash, each.sample): each for each in requests if not self._is_answered(each)}
        try:
            if pending and isinstance(self._source, Limited):
                purposes = Counter(each.prompt.purpose for each in pending.values())
                self._tell(", ".join(f"{count} x {purpose}" for purpose, count in purposes.items()) + " under way")
            if pending:
                self._source.answer([*pending.values()], self._heard)
        except BudgetReached as error:
            first = next(each for each in pending.values() if not self._is_answered(each))
            self._log.add(self._record(first, Answer("ok", raw=str(error)), "server", 0.0) | {"status": ENDED})
            raise
        return [self._reply(each) for each in requests]

    def _is_answered(self, request: Request) -> bool:
        record = self._log.find(self.identity[1], request.prompt.hash, request.sample)
        return record is not None and record["status"] not in NOT_KEPT

    def _heard(self, request: Request, answer: Answer, origin: Origin, cost: float) -> None:
        record = self._record(request, answer, origin, cost)
        self._log.add(record)
        if origin == "server":
            self._tell(
                f"{record['purpose']}: {record['status']} after {answer.seconds:.0f} s, {answer.completion_tokens} tokens"
            )

    def _tell(self, line: str) -> None:
        if self.watch is not None:
            self.watch(f"{self.identity[0]}: {line}")

    def _record(self, request: Request, answer: Answer, origin: Origin, cost: float) -> dict[str, Any]:
        prompt, found = request.prompt, _read(request, answer)
        return {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "llm": self.identity[0],
            "settings": self.identity[1],
            "purpose": prompt.purpose,
            "round": request.round,
            "request": prompt.hash,
            "sample": request.sample,
            "temperature": prompt.temperature,
            "messages": [{"role": message.role, "text": self._clean(message.text)} for message in prompt.messages],
            "schema": dict(prompt.question(None).schema),
            "status": found.status,
            "raw": self._clean(answer.raw),
            "content": dict(found.content) if prompt.form else {},
            "model": self._clean(answer.model),
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "cost": cost,
            "attempts": answer.attempts,
            "seconds": round(answer.seconds, 3),
            "origin": origin,
        }

    def _reply(self, request: Request) -> Reply:
        record: Record | None = self._log.find(self.identity[1], request.prompt.hash, request.sample)
        assert record is not None, "a source passes on an answer to each request, or raises"
        answer = _read(request, answer_in(record))
        facts = answer.model, record["request"], answer.prompt_tokens, answer.completion_tokens, float(record["cost"])
        return Reply(request.sample, answer.status, answer.raw, answer.content, *facts, record["origin"])

    def _request(self, prompt: Prompt, sample: int) -> Request:
        known = self._rounds.setdefault(prompt.purpose, {})
        return Request(prompt, sample, known.setdefault(prompt.hash, len(known)))

    def _repair(self, request: Request, reply: Reply) -> Request:
        """Return the request that shows the model the problem of its answer."""
        prompt = request.prompt
        assert prompt.form is not None, "free words are never wrong"
        words = f"This cannot be used: {broken_by(prompt.form, reply.text)}. Answer again, with the JSON object alone."
        again = replace(prompt.then(reply.text[:SHOWN], words), purpose=prompt.purpose + REPAIR)
        return self._request(again, reply.sample)

    def _clean(self, words: str) -> str:
        return words.replace(self._secret, "[key]") if self._secret else words


def _is_broken(request: Request, reply: Reply) -> bool:
    return request.prompt.form is not None and reply.status == "garbage" and bool(reply.text.strip())


def _read(request: Request, answer: Answer) -> Answer:
    """Return the answer read strictly; free words that decline and show no code are a refusal."""
    found = read(request.prompt.question(None), answer)
    if found.status == "ok" and request.prompt.form is None and REFUSAL.match(found.raw) and "```" not in found.raw:
        return replace(found, status="refused", content={})
    return found
