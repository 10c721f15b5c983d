"""Chat model that answers from the log of a run: it answers all questions of the same run, and sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest
from pathlib import Path

from robo_rl.errors import BudgetReached, JudgeError, NotInLog
from robo_rl.rewards.chat.log import ENDED, Record, answer_in, read_log
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.identity import hash_of

SHOWN = 120
"""Largest number of characters of a differing line that an error message shows."""


class LoggedModel:
    """Chat model that answers from the log of an earlier run, without sending anything.

    For a request that is not in the log it raises an error with the difference to the nearest one.
    """

    def __init__(self, path: Path) -> None:
        """Read a log; raises JudgeError if it cannot be read, is empty, or has replies of two models to one request."""
        self._path = path
        self._records, self._torn = read_log(path)
        if not self._records:
            raise JudgeError(f"The log {path} is empty.", fix="name the log of a run that has asked something")
        self.identity = _identity(self._records)
        self._found: dict[tuple[str, int], Record] = {}
        for record in self._records:
            self._take(record)

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield the logged answers; raises NotInLog, and BudgetReached where the logged run ended."""
        for number, question in enumerate(questions):
            record = self._found.get((question.request, question.sample or 0))
            if record is None:
                raise self._missing(question)
            if record["status"] == ENDED:
                raise BudgetReached("The run that is replayed ended here.", got=record["raw"].splitlines()[0])
            yield number, replace(answer_in(record), origin="log")

    def report(self) -> str:
        """Return a line with the model of the log, its file and number of replies."""
        torn = f"; its last line was torn ({self._torn} bytes) and is left out" if self._torn else ""
        return f"{self.identity[0]}, replayed from {self._path}: {len(self._records)} replies{torn}"

    def _take(self, record: Record) -> None:
        """Keep the last record of a reply; raises JudgeError if two models have replied to the same request."""
        key = record["request"], record["sample"]
        before = self._found.get(key, record)
        if before["settings"] != record["settings"] and before["status"] == "ok":
            raise JudgeError(
                f"The log {self._path} has two replies to one request.",
                got=f"{before['llm']} ({before['settings']}) and {record['llm']} ({record['settings']}): {record['purpose']!r}",
                allowed="one: the log of a run does not show a change of its model",
                fix="name another log",
            )
        self._found[key] = record

    def _missing(self, question: Question) -> NotInLog:
        same = [record for record in self._records if record["request"] == question.request]
        alike = [record for record in self._records if record["purpose"] == question.purpose]
        if same:
            samples = sorted({record["sample"] for record in same})
            problem = f"this prompt is there with the samples {', '.join(map(str, samples))}"
        elif alike:
            nearest = max(alike, key=lambda record: _likeness(question, record))
            problem = f"nearest is prompt {nearest['round']} of this purpose: {_difference(question, nearest)}"
        else:
            problem = "nothing of this purpose; it has " + ", ".join(sorted({record["purpose"] for record in self._records}))
        return NotInLog(
            f"The log {self._path} has no reply to prompt {question.round} for {question.purpose!r}, sample {question.sample}.",
            got=problem,
            fix="replay with the same settings, seed, environment and version as the run of the log; "
            "or ask a model: --llm, with this log as the run's own",
        )


def _identity(records: Sequence[Record]) -> tuple[str, str]:
    """Return the identity of the model in a log; a combination of all models if the run was resumed with other settings."""
    found = sorted({(record["llm"], record["settings"]) for record in records})
    if len(found) == 1:
        return found[0]
    return " and ".join(sorted({name for name, _ in found})), hash_of(*(settings.encode() for _, settings in found))


def _likeness(prompt: Question, record: Record) -> tuple[bool, int]:
    """Return a sort key: True for equal numbers of messages, and the number of characters before the first difference."""
    said, logged = ([message.text for message in prompt.messages], [message["text"] for message in record["messages"]])
    same = takewhile(lambda pair: pair[0] == pair[1], zip("\n".join(said), "\n".join(logged), strict=False))
    return len(said) == len(logged), sum(1 for _ in same)


def _difference(prompt: Question, record: Record) -> str:
    """Return in words the first difference between a question and a logged one."""
    if prompt.temperature != record["temperature"]:
        return f"temperature {prompt.temperature}, in the log {record['temperature']}"
    if dict(prompt.schema) != record["schema"]:
        return "another form of the answer"
    pairs = zip_longest(prompt.messages, record["messages"])
    for number, (said, logged) in enumerate(pairs):
        if said is None or logged is None:
            return f"{len(prompt.messages)} messages, in the log {len(record['messages'])}"
        if said.role != logged["role"]:
            return f"message {number} is the {said.role}'s, in the log the {logged['role']}'s"
        if said.text != logged["text"]:
            return f"message {number} ({said.role}), {_line(said.text, logged['text'])}"
    return "nothing that the log shows"


def _line(said: str, logged: str) -> str:
    lines = enumerate(zip_longest(said.splitlines(), logged.splitlines(), fillvalue=""), 1)
    number, (one, other) = next(((number, pair) for number, pair in lines if pair[0] != pair[1]), (0, ("", "")))
    return f"line {number}: {one[:SHOWN]!r}, in the log {other[:SHOWN]!r}"
