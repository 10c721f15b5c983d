"""Store of answers on disk: each answer is durable before the next question, so that nothing is paid for twice.

FOLDER/answers.sqlite, in write-ahead mode, has one row for each question and judge, with the SHA-256 of its contents.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from robo_rl.errors import JudgeError, fix_of
from robo_rl.rewards.chat.question import Answer
from robo_rl.system.database import Database
from robo_rl.system.user_cache import user_cache

REMEDY = "look at the disk; a broken file can be moved away, and its answers are asked for again"
_TABLES = """CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, judge TEXT NOT NULL, status TEXT NOT NULL,
    raw TEXT NOT NULL, model TEXT NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spent (judge TEXT NOT NULL, model TEXT NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, PRIMARY KEY (judge, model));"""


class AnswerStore:
    """Store of answers of judges, which several processes may share; used as `with store.opened() as answers`."""

    def __init__(self, folder: str = "") -> None:
        """Store the folder; "" for the default one. No file is created before `opened`."""
        self.path = (Path(folder) if folder else user_cache() / "answers") / "answers.sqlite"
        self._database = Database(self.path, REMEDY, schema=_TABLES, error=JudgeError)

    @contextmanager
    def opened(self) -> Iterator[Answers]:
        """Yield the open store; errors of the file become JudgeErrors that name it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JudgeError(f"{self.path} cannot be used.", got=error, fix=fix_of(error)) from error
        with self._database.opened() as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")  # damaged text is read, and dropped
            yield Answers(connection)


class Answers:
    """Open store (SQLite) of the answers of judges, by the key of the question."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Return key -> stored answer; an answer that was changed on disk is deleted."""
        found = {}
        for key in keys:
            row = self._connection.execute("SELECT * FROM answers WHERE key = ?", (key,)).fetchone()
            if row is None:
                continue
            if _digest(*row[:-1]) != row[-1]:
                with self._connection:
                    self._connection.execute("DELETE FROM answers WHERE key = ?", (key,))
                continue
            _, _, status, raw, model, prompt, completion, _ = row
            found[key] = Answer(status, {}, raw, model, prompt, completion)
        return found

    def add(self, key: str, judge: str, answer: Answer) -> None:
        """Store an answer durably, and add its tokens to the sums."""
        raw = answer.text.encode(errors="replace").decode()  # half a surrogate cannot be stored
        tokens = answer.prompt_tokens, answer.completion_tokens
        row = key, judge, answer.status, raw, answer.model, *tokens
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, _digest(*row)))
            self._connection.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
                "completion_tokens = completion_tokens + excluded.completion_tokens",
                (judge, answer.model, *tokens),
            )

    def spent(self, judge: str) -> Mapping[str, tuple[int, int]]:
        """Sum up the tokens that a judge has used: name of the answering model -> (tokens of questions, tokens of answers)."""
        rows = self._connection.execute("SELECT model, prompt_tokens, completion_tokens FROM spent WHERE judge = ?", (judge,))
        return {model: (prompt, completion) for model, prompt, completion in rows}


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()
