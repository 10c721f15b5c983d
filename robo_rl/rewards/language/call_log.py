"""The log of a run: one line of JSON for each reply, durable before the reply is used, and never changed afterwards.

It answers what was asked before, so that a run that goes on pays for nothing twice; with `--replay` it answers everything. What
a run has asked and paid, by purpose, follows from its log alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robo_rl.errors import JudgeError
from robo_rl.types import Metrics

Record = Mapping[str, Any]
FIELDS = {"llm", "settings", "purpose", "round", "request", "sample", "temperature", "messages", "schema", "status", "raw"}
FIELDS |= {"model", "prompt_tokens", "completion_tokens", "cost", "attempts", "seconds", "origin"}
"""That every record has."""
NAME = "calls.jsonl"
"""Of the log in the folder of a run."""
LONG = ("messages", "schema")
"""What no reply is made of, and nobody keeps in memory: an annotator asks ten thousands of times."""
ENDED = "budget reached"
"""Status of the record that ends a run whose budget, or whose pack, has no more replies."""


def read_log(path: Path) -> tuple[list[Record], int]:
    """Returns the records, and how many bytes of a last line are torn and left out; raises JudgeError for a broken line.

    path: of a log, or of the folder that has one.
    """
    path = path / NAME if path.is_dir() else path
    try:
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
    """The log of one run; whoever opened it is its only writer. Without a path it is kept in memory."""

    def __init__(self, path: Path | None) -> None:
        """Opens a log, or begins one. Raises JudgeError where another process writes it, or a line of it is broken."""
        self.path, self.torn = path, 0
        self.records: list[Record] = []  # all but what is long
        self._found: dict[tuple[str, str, int], Record] = {}
        self._file: int | None = None
        if path is not None:
            self._file = _opened(path)
            self._close = weakref.finalize(self, os.close, self._file)
            self._resume(path)

    def find(self, settings: str, request: str, sample: int) -> Record | None:
        """Returns the last record of a reply, or None. settings, request: hashes of the model's settings and of the prompt."""
        return self._found.get((settings, request, sample))

    def add(self, record: Record) -> None:
        """Appends a record; it is on disk when this returns. Raises JudgeError after `close`."""
        if self._file is not None:
            if not self._close.alive:
                raise JudgeError("The log is closed.", got=record["purpose"], fix="ask before the language model is closed")
            self._write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._take(record)

    def close(self) -> None:
        """Lets another process write it; nothing can be added any more."""
        if self._file is not None:
            self._close()

    def _resume(self, path: Path) -> None:
        """Takes over what is there; a torn last line is cut off, one that lacks nothing but its end gets it."""
        assert self._file is not None
        kept, self.torn = read_log(path)
        os.ftruncate(self._file, path.stat().st_size - self.torn)
        if kept and not path.read_bytes().endswith(b"\n"):
            self._write(b"\n")
        for record in kept:
            self._take(record)

    def _write(self, line: bytes) -> None:
        """Appends a line whole or not at all."""
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
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise JudgeError(f"The log {path} cannot be written.", got=error, fix="name another folder") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise JudgeError(f"Somebody else writes the log {path}.", fix="wait for its end, or name another folder") from None
    return file


def _record(line: bytes) -> Record | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= FIELDS else None


PAID = "server"
"""Origin of the replies that cost something in this run."""


def spent(records: Sequence[Record]) -> Metrics:
    """Returns how many replies there are, how many of them were paid for in this run, and their tokens and cost."""
    replies = _replies(records)
    paid = [record for record in replies if record["origin"] == PAID]
    counts = {"replies": len(replies), "paid": len(paid), "tokens": sum(map(_tokens, paid)), "cost": sum(map(_cost, paid))}
    return {f"llm/{name}": float(count) for name, count in counts.items()}


def account(records: Sequence[Record]) -> str:
    """Returns a table: for each purpose prompts, replies, how they ended, tokens and cost; then who answered."""
    if not records:
        return "nothing was asked"
    replies = _replies(records)
    rows = [_row(purpose, replies) for purpose in dict.fromkeys(record["purpose"] for record in replies)]
    head = (
        f"{'purpose':20} {'prompts':>7} {'replies':>7} {'paid':>5} {'tokens in':>9} {'out':>8} {'cost':>9} {'mean s':>7}  ended"
    )
    lines = [head, *rows, *([_row("", replies)] if len(rows) > 1 else [])]
    names = ", ".join(sorted({repr(record["model"]) for record in replies if record["model"]})) or "nobody"
    lines.append(f"{', '.join(sorted({record['llm'] for record in records}))}, answered by {names}")
    paid = [record for record in replies if record["origin"] == PAID and record["status"] in ("ok", "cut", "garbage")]
    if uncounted := sum(not _tokens(record) for record in paid):
        lines.append(f"{uncounted} replies came without a count of tokens: their cost is not known")
    if ended := [record for record in records if record["status"] == ENDED]:
        lines.append(f"ended: {ended[-1]['raw'].splitlines()[0]}")
    return "\n".join(lines)


def _row(purpose: str, replies: Sequence[Record]) -> str:
    """Returns a line for one purpose, or for all of them where it is empty."""
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
