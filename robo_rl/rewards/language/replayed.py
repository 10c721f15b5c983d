"""Replies out of the log of an earlier run: no server, no key, and never a guess at what is not in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile, zip_longest
from pathlib import Path

from robo_rl.errors import BudgetReached, JudgeError, NotInLog
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judging import Answer
from robo_rl.rewards.language.call_log import ENDED, Record, read_log
from robo_rl.rewards.language.conversation import Heard, Prompt, Request

SHOWN = 120
"""Characters of a line that differs."""


class LogSource:
    """Answers from a log; a request that is not in it is an error that says what differs."""

    def __init__(self, path: Path) -> None:
        """Reads a log; raises JudgeError where it cannot be read, is empty, or has two models' replies to one request."""
        self._path = path
        self._records, self._torn = read_log(path)
        if not self._records:
            raise JudgeError(f"The log {path} is empty.", fix="name the log of a run that has asked something")
        self.identity = _identity(self._records)
        self._found: dict[tuple[str, int], Record] = {}
        for record in self._records:
            self._take(record)

    def answer(self, requests: Sequence[Request], heard: Heard) -> None:
        """Tells the logged answers; raises NotInLog, and BudgetReached where the run of the log came to its end."""
        for request in requests:
            record = self._found.get((request.prompt.hash, request.sample))
            if record is None:
                raise self._missing(request)
            if record["status"] == ENDED:
                raise BudgetReached("The run that is replayed ended here.", got=record["raw"].splitlines()[0])
            heard(request, answer_in(record), "log", float(record["cost"]))

    def report(self) -> str:
        """Returns whose replies they are."""
        torn = f"; its last line was torn ({self._torn} bytes) and is left out" if self._torn else ""
        return f"{self.identity[0]}, replayed from {self._path}: {len(self._records)} replies{torn}"

    def _take(self, record: Record) -> None:
        """Keeps the last record of a reply; raises JudgeError where two models have given it."""
        key = record["request"], record["sample"]
        before = self._found.get(key, record)
        if before["settings"] != record["settings"] and before["status"] == "ok":
            raise JudgeError(
                f"The log {self._path} has two replies to one request.",
                got=f"{before['llm']} ({before['settings']}) and {record['llm']} ({record['settings']}): {record['purpose']!r}",
                allowed="one: a run whose model was changed on the way cannot be told from its log",
                fix="name another log",
            )
        self._found[key] = record

    def _missing(self, request: Request) -> NotInLog:
        prompt = request.prompt
        same = [record for record in self._records if record["request"] == prompt.hash]
        alike = [record for record in self._records if record["purpose"] == prompt.purpose]
        if same:
            samples = sorted({record["sample"] for record in same})
            problem = f"this prompt is there with the samples {', '.join(map(str, samples))}"
        elif alike:
            nearest = max(alike, key=lambda record: _likeness(prompt, record))
            problem = f"nearest is prompt {nearest['round']} of this purpose: {_difference(prompt, nearest)}"
        else:
            problem = "nothing of this purpose; it has " + ", ".join(sorted({record["purpose"] for record in self._records}))
        return NotInLog(
            f"The log {self._path} has no reply to prompt {request.round} for {prompt.purpose!r}, sample {request.sample}.",
            got=problem,
            fix="replay with the same settings, seed, environment and version as the run of the log; "
            "or ask a model: --llm, with this log as the run's own",
        )


def _identity(records: Sequence[Record]) -> tuple[str, str]:
    """Returns the model of a log; of a run that went on with other settings, what tells all of them."""
    found = sorted({(record["llm"], record["settings"]) for record in records})
    if len(found) == 1:
        return found[0]
    return " and ".join(sorted({name for name, _ in found})), hash_of(*(settings.encode() for _, settings in found))


def answer_in(record: Record) -> Answer:
    """Returns the answer of a record."""
    return Answer(record["status"], {}, record["raw"], record["model"], record["prompt_tokens"], record["completion_tokens"])


def _likeness(prompt: Prompt, record: Record) -> tuple[bool, int]:
    """Returns whether there are as many messages, and how many characters pass before the first difference."""
    said, logged = ([message.text for message in prompt.messages], [message["text"] for message in record["messages"]])
    same = takewhile(lambda pair: pair[0] == pair[1], zip("\n".join(said), "\n".join(logged), strict=False))
    return len(said) == len(logged), sum(1 for _ in same)


def _difference(prompt: Prompt, record: Record) -> str:
    """Returns the first thing that differs between a prompt and a logged one."""
    if prompt.temperature != record["temperature"]:
        return f"temperature {prompt.temperature}, in the log {record['temperature']}"
    if dict(prompt.question(None).schema) != record["schema"]:
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
