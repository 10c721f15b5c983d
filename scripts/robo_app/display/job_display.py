"""Display of concurrent jobs: on a terminal a table with the last line of each log, in a pipe a line per finished job."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from robo_app.display.plain_console import PlainConsole
from robo_rl.errors import printable, printable_lines

PERIOD = 60.0  # [s] between two updates in a pipe
TAIL = 4096
"""Number of bytes at the end of a log in which its last line is looked for."""


class Board:
    """Live table of the running jobs, with the number of ended ones; a context manager."""

    def __init__(self, title: str, total: int, logs: Path, console: Console | None = None) -> None:
        """Make the table.

        title: words in front. total: number of jobs. logs: folder with the log JOB.log of each job.
        """
        self._title, self.total, self._logs = title, total, logs
        self.caption = ""
        self._running: dict[str, None] = {}  # keeps the order
        self._ended, self._shown_at = 0, time.monotonic()
        self._console = console or PlainConsole(file=sys.stdout)
        self._live = Live(get_renderable=self.table, console=self._console, refresh_per_second=1, transient=True)

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def begin(self, job: str) -> None:
        """Add a job that was started."""
        self._running[job] = None

    def end(self, job: str, status: int) -> None:
        """Remove a job that has ended, and print whether it failed."""
        self.drop(job)
        self._ended += 1
        self.say(f"{self._title} {self._ended}/{self.total}: {job} {'failed' if status else 'done'}")

    def drop(self, job: str) -> None:
        """Remove a job that was stopped on purpose, without a message."""
        self._running.pop(job, None)

    def look(self) -> None:
        """In a pipe print the last line of each running job every minute; on a terminal do nothing."""
        if self._console.is_terminal or time.monotonic() - self._shown_at < PERIOD:
            return
        self._shown_at = time.monotonic()
        for job in list(self._running):
            self.say(f"  {job}: {last_line(self._logs / f'{job}.log')}")

    def table(self) -> Table:
        """Return the table with the last line of each running job."""
        table = Table(
            "job",
            "newest",
            title=f"{self._title}: {self._ended} of {self.total} done",
            title_justify="left",
            caption=self.caption or None,
            caption_justify="left",
            min_width=60,
        )
        for job in list(self._running):
            table.add_row(job, escape(printable(last_line(self._logs / f"{job}.log"))))
        return table

    def say(self, line: str) -> None:
        """Print a line that stays on the screen."""
        self._console.print(printable_lines(line), highlight=False, markup=False, soft_wrap=True)


def last_line(log: Path) -> str:
    """Return the last non-empty line of a log, or "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
