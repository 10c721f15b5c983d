"""Status of a training: written while it runs, read by any process that watches its folder."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from robo_rl.errors import RoboRLError
from robo_rl.system.durable_files import is_locked
from robo_rl.system.plain_files import read_object

FILE, LOCK = "status.json", "lock"
LONGEST_ERROR = 4000
"""Largest number of characters of an error that are stored."""
FRESH = 60.0
"""[s] without a change after which a training on another machine counts as silent."""

State = Literal["running", "finished", "interrupted", "failed"]
Verdict = Literal["running", "finished", "interrupted", "failed", "crashed", "silent", "unfinished"]
"""State of a training as seen from outside: "crashed" if the process is gone, "silent" if that cannot be known, "unfinished"
without a status."""


@dataclass(frozen=True)
class RunStatus:
    """Content of status.json, from which others see whether a training runs, what it does and at which step."""

    state: State = "running"
    activity: str = "starting"
    """Present activity, such as "training" or "evaluation"."""
    step: int = 0
    """Step that the training has reached."""
    updated: float = 0.0
    """Time of writing [s since 1970], by the clock of the training machine."""
    host: str = ""
    """Name of the machine on which the training runs."""
    lock: int = 0
    """Inode of the lock file, which differs in a copy of the folder."""
    error: str = ""
    """Text of the error that ended the training; empty if none did."""

    @classmethod
    def read(cls, run: Path) -> Self | None:
        """Return the status of a run folder, or None if there is none or it is damaged."""
        try:
            found = read_object(run / FILE)
            known: dict[str, Any] = {name: type(own)(found[name]) for name, own in asdict(cls()).items() if name in found}
        except (RoboRLError, OSError, TypeError, ValueError, OverflowError):
            return None
        return cls(**known)

    @classmethod
    def here(cls, run: Path) -> Self:
        """Return the initial status of a training that this process starts or resumes."""
        before = cls.read(run) or cls()
        return cls(step=before.step, host=socket.gethostname(), lock=(run / LOCK).stat().st_ino)

    def write(self, run: Path) -> None:
        """Replace status.json; does nothing if the disk is full, since a status must not end a training."""
        draft = run / f"{FILE}.new"
        with suppress(OSError):
            draft.write_text(json.dumps(asdict(self) | {"updated": time.time()}))
            draft.rename(run / FILE)  # not durable: after a power cut the process is gone, too


def error_text(error: BaseException) -> str:
    """Return the text of an error, shortened, for `RunStatus.error`."""
    text = str(error) if isinstance(error, RoboRLError) else f"{type(error).__name__}: {error}"
    return text[:LONGEST_ERROR]


def verdict(run: Path, status: RunStatus | None, *, silent: float) -> Verdict:
    """Judge from outside whether a training runs, ended or crashed.

    A process that holds the lock is alive, also on another machine if the file system supports locks. A copy of the folder is
    judged only by its last change.

    Args:
        run: Folder of the run.
        status: Its status.
        silent: Time since the folder changed [s].
    """
    if is_locked(run / LOCK):
        return "running"
    if status is None:
        has_ended = (run / "evaluation.json").exists()
        return "finished" if has_ended else "running" if silent < FRESH else "unfinished"
    if status.state != "running":
        return status.state
    is_original = status.host == socket.gethostname() and status.lock == _inode(run / LOCK)
    return "crashed" if is_original else "running" if silent < FRESH else "silent"


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
