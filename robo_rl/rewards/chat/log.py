"""Log of a run's calls: one line of JSON per reply, durable before the reply is used, and never changed afterwards.

It answers repeated requests, so that a resumed run pays for nothing twice. With `--replay` it answers all requests, and raises
an error for a request that is not in it. The number and cost of the requests of a run, by purpose, follow from its log alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from robo_rl.errors import JudgeError
from robo_rl.rewards.chat.question import Answer, Question, read
from robo_rl.system.plain_files import require_plain
from robo_rl.types import Metrics

Record = Mapping[str, Any]
FIELDS = {"llm", "settings", "purpose", "round", "request", "sample", "temperature", "messages", "schema", "status", "raw"}
FIELDS |= {"model", "prompt_tokens", "completion_tokens", "cost", "attempts", "seconds", "origin"}
"""Fields of every record."""
NAME = "calls.jsonl"
"""File name of the log in the folder of a run."""
LONG = ("messages", "schema")
"""Fields of a record that are not kept in memory, since replies do not need them and a run may have tens of thousands of
requests."""
ENDED = "budget reached"
"""Status of the last record of a run whose budget or pack was used up."""


def read_log(path: Path) -> tuple[list[Record], int]:
    """Return the records of a log, and the size of an incomplete last line in bytes, which is left out.

    path: file, or folder with the file. Raises JudgeError if the file cannot be read, or another line is damaged.
    """
    path = path / NAME if path.is_dir() else path
    try:
        require_plain(path)
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise JudgeError(f"The log {path} cannot be read.", got=error, fix="name a log that a run has written") from None
    records = list[Record]()
    for number, line in enumerate(lines, 1):
        record = _record(line)
        if record is None and number == len(lines) and not line.endswith(b"\n"):
            return records, len(line)
        if record is None:
            raise JudgeError(
                f"Line {number} of {path} is not a record of a call.",
                got=repr(line[:60]),
                fix="name a log that a run has written; only its last line can break by itself",
            )
        records.append(record)
    return records, 0


class CallLog:
    """Log of all calls of a language model in one run, with a single writer; without a path it is kept in memory only."""

    def __init__(self, path: Path | None) -> None:
        """Open or create the log; raises JudgeError if another process writes it, or a line is damaged."""
        self.path, self.torn = path, 0
        self.records: list[Record] = []  # without the LONG fields
        self._found: dict[tuple[str, str, int], Record] = {}
        self._file: int | None = None
        if path is not None:
            self._file = _opened(path)
            self._close = weakref.finalize(self, os.close, self._file)
            self._resume(path)

    def find(self, settings: str, request: str, sample: int) -> Record | None:
        """Return the newest record of a reply, or None if there is none.

        settings, request: hashes of the model's settings and of the prompt. sample: number of the sample.
        """
        return self._found.get((settings, request, sample))

    def add(self, record: Record) -> None:
        """Append a record, which is on disk when this returns; raises JudgeError after `close`."""
        if self._file is not None:
            if not self._close.alive:
                raise JudgeError("The log is closed.", got=record["purpose"], fix="ask before the language model is closed")
            self._write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._take(record)

    def close(self) -> None:
        """Release the log for other processes; nothing can be added afterwards."""
        if self._file is not None:
            self._close()

    def _resume(self, path: Path) -> None:
        """Read the existing records; remove an incomplete last line."""
        assert self._file is not None
        kept, self.torn = read_log(path)
        os.ftruncate(self._file, path.stat().st_size - self.torn)
        if kept and not path.read_bytes().endswith(b"\n"):
            self._write(b"\n")
        for record in kept:
            self._take(record)

    def _write(self, line: bytes) -> None:
        """Append a line as a whole or not at all."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            raise JudgeError(
                f"The log {self.path} cannot be written.", got=error, fix="free some space; the same command goes on"
            ) from None

    def _take(self, record: Record) -> None:
        kept = {name: value for name, value in record.items() if name not in LONG}
        self.records.append(kept)
        self._found[kept["settings"], kept["request"], kept["sample"]] = kept


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        require_plain(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise JudgeError(f"The log {path} cannot be written.", got=error, fix="name another folder") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise JudgeError(f"Another process writes the log {path}.", fix="wait for its end, or name another folder") from None
    return file


def _record(line: bytes) -> Record | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= FIELDS else None


def record_of(
    question: Question, messages: Sequence[Mapping[str, str]], answer: Answer, identity: tuple[str, str]
) -> dict[str, Any]:
    """Make the record of an answer for the log.

    Args:
        question: The question.
        messages: Its messages as the log shows them.
        answer: The answer.
        identity: Identity of the model, its name and hash.
    """
    found = read(question, answer)
    return {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "llm": identity[0],
        "settings": identity[1],
        "purpose": question.purpose,
        "round": question.round,
        "request": question.request,
        "sample": question.sample or 0,
        "temperature": question.temperature,
        "messages": [*messages],
        "schema": dict(question.schema),
        "status": found.status,
        "raw": answer.text,
        "content": dict(found.content) if question.form else {},
        "model": answer.model,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "cost": answer.cost,
        "attempts": answer.attempts,
        "seconds": round(answer.seconds, 3),
        "origin": answer.origin,
    }


def answer_in(record: Record) -> Answer:
    """Return the answer that a record of the log holds."""
    tokens = record["prompt_tokens"], record["completion_tokens"]
    origin, sample, cost = record["origin"], record["sample"], float(record["cost"])
    return Answer(record["status"], {}, record["raw"], record["model"], *tokens, cost, record["request"], sample, origin=origin)


PAID = "server"
"""Value of a record's field for the origin: the reply came from a server in this run, and so may have cost something."""


def spent(records: Sequence[Record]) -> Metrics:
    """Sum up the records of a log as metrics.

    `llm/replies` is their number; `llm/paid`, `llm/tokens` and `llm/cost` count those that were paid for in this run.
    """
    replies = _replies(records)
    paid = [record for record in replies if record["origin"] == PAID]
    counts = {"replies": len(replies), "paid": len(paid), "tokens": sum(map(_tokens, paid)), "cost": sum(map(_cost, paid))}
    return {f"llm/{name}": float(count) for name, count in counts.items()}


def account(records: Sequence[Record]) -> str:
    """Return a table as text for the records of a run.

    For each purpose it has the numbers of prompts, replies and statuses, tokens and cost; the models follow.
    """
    if not records:
        return "nothing was asked"
    replies = _replies(records)
    rows = [_row(purpose, replies) for purpose in dict.fromkeys(record["purpose"] for record in replies)]
    head = (
        f"{'purpose':20} {'prompts':>7} {'replies':>7} {'paid':>5} {'tokens in':>9} {'out':>8} {'cost':>9} {'mean s':>7}  ended"
    )
    lines = [head, *rows, *([_row("", replies)] if len(rows) > 1 else [])]
    names = ", ".join(sorted({repr(record["model"]) for record in replies if record["model"]})) or "no model"
    lines.append(f"{', '.join(sorted({record['llm'] for record in records}))}, answered by {names}")
    paid = [record for record in replies if record["origin"] == PAID and record["status"] in ("ok", "cut", "garbage")]
    if uncounted := sum(not _tokens(record) for record in paid):
        lines.append(f"{uncounted} replies came without a count of tokens: their cost is not known")
    if ended := [record for record in records if record["status"] == ENDED]:
        lines.append(f"ended: {ended[-1]['raw'].splitlines()[0]}")
    return "\n".join(lines)


def _row(purpose: str, replies: Sequence[Record]) -> str:
    """Return the line of the table for one purpose; "" for the sum of all."""
    own = [record for record in replies if purpose in ("", record["purpose"])]
    paid = [record for record in own if record["origin"] == PAID]
    prompts, spoken = sum(record["prompt_tokens"] for record in paid), sum(record["completion_tokens"] for record in paid)
    seconds = sum(record["seconds"] for record in paid) / max(1, len(paid))
    asked = len({record["request"] for record in own})
    ends = ", ".join(f"{count} {status}" for status, count in Counter(record["status"] for record in own).most_common())
    return (
        f"{purpose or 'all':20} {asked:7} {len(own):7} {len(paid):5} {prompts:9} {spoken:8} {sum(map(_cost, paid)):9.4g} "
        f"{seconds:7.1f}  {ends}"
    )


def _replies(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["status"] != ENDED]


def _tokens(record: Record) -> int:
    return int(record["prompt_tokens"]) + int(record["completion_tokens"])


def _cost(record: Record) -> float:
    return float(record["cost"])
