"""An append-only log of what a guard did: one JSON object per line, in the hands of the operating system at once."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any


class AuditLog:
    """Appends events to a file, where one is named, and remembers the last few."""

    def __init__(self, path: Path | None = None, remembered: int = 200) -> None:
        self.path = path
        self.recent: deque[dict[str, Any]] = deque(maxlen=remembered)
        self._lock = threading.Lock()
        self._number = 0
        self._file: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, event: str, **facts: Any) -> None:
        """Appends one event with its number and both clocks; a full disk must not keep an arm from stopping."""
        with self._lock:
            self._number += 1
            line = {"number": self._number, "event": event, "monotonic": time.monotonic(), "wall": time.time(), **facts}
            self.recent.append(line)
            if self._file is not None:
                try:
                    os.write(self._file, json.dumps(line).encode() + b"\n")
                except OSError:
                    self.recent.append({**line, "event": "log_failed"})

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
