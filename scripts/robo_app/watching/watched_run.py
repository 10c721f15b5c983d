"""State of one run for the page: progress, speed and problems."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from robo_app.watching.json_lines import GrowingLines, Line
from robo_rl.errors import RoboRLError
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.report.reading import RecordedRun, RunFiles
from robo_rl.runs.run import MESSAGES
from robo_rl.runs.status import FILE, LOCK, RunStatus, Verdict, verdict

NEWEST_MESSAGES = 5
"""Number of a training's newest messages that are shown."""
UPDATES = ("train/updates", "train/n_updates")
"""Tags of the number of updates so far: that of most learners, and that of Stable-Baselines3 and PPO."""
RECENT_LINES = 8
"""Number of newest lines of the log over which speed is measured."""
WRITTEN = (FILE, "metrics.jsonl", MESSAGES, "evaluation.json", "evaluations", "checkpoints", "recipe.yaml", LOCK)
"""Files and folders of a run that change while its training is alive."""
FOREIGN = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors that damaged or foreign values in a run's files cause."""
MEANINGS: dict[Verdict, str] = {
    "crashed": "Its process is gone without a word: killed, out of memory, or the machine was restarted.",
    "silent": "Nothing has changed for a while: the training hangs or was killed, or this copy of its folder is not refreshed.",
    "unfinished": "Nothing writes it, and there is no final evaluation.",
    "interrupted": "It was interrupted, and can go on.",
}


@dataclass(frozen=True)
class Seen:
    """State of a run at one moment, as `WatchedRun.look` returns it."""

    run: RecordedRun
    status: RunStatus | None
    verdict: Verdict
    messages: list[Line]
    damaged: int
    """Number of damaged lines in its log."""
    silent: float
    """Time since the last change of the folder [s]."""

    @property
    def step(self) -> int:
        """Newest environment step that the run has logged."""
        return max(self.run.steps, self.status.step if self.status and self.verdict == "running" else 0)

    @property
    def total(self) -> int:
        """Steps of the whole training, its online phase included."""
        online = self.run.recipe.get("online") or {}
        return sum(steps for steps in (self.run.recipe.get("steps"), online.get("steps")) if isinstance(steps, int))

    @property
    def activity(self) -> str:
        """Current activity of a running training; "" if it does not run."""
        return self.status.activity if self.status and self.verdict == "running" else ""

    @property
    def judged(self) -> Evaluation | None:
        """The newest evaluation, or None."""
        return self.run.curve[-1][1] if self.run.curve else None

    @cached_property
    def speed(self) -> float | None:
        """Steps per second, from the newest RECENT_LINES lines of the log; None if there are fewer than two lines.

        The time of evaluations counts.
        """
        recent = self.run.metrics[-RECENT_LINES:]
        seconds = recent[-1].get("time", 0.0) - recent[0].get("time", 0.0) if len(recent) > 1 else 0.0
        return (recent[-1]["step"] - recent[0]["step"]) / seconds if seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Remaining time at this speed [s]; None if it is not known, or the training does not run."""
        return (self.total - self.step) / self.speed if self.verdict == "running" and self.speed else None

    def check(self) -> None:
        """Compute everything that the page shows; raises one of FOREIGN if a file of the run has invalid values."""
        run = self.run
        for name in ("label", "environment", "group", "name", "seconds", "curve"):
            getattr(run, name)
        for name in ("step", "total", "left", "updates", "troubles", "remarks"):
            getattr(self, name)
        for name in ("mean_return", "success_rate") if self.judged is not None else ():
            getattr(self.judged, name)

    @property
    def updates(self) -> float | None:
        """Updates per second, from the newest RECENT_LINES lines of the log; None if it is not known."""
        tag = next((tag for tag in UPDATES if tag in self.run.newest), "")
        recent = [line for line in self.run.metrics[-RECENT_LINES:] if isinstance(line.get(tag), int | float)]
        seconds = recent[-1].get("time", 0.0) - recent[0].get("time", 0.0) if len(recent) > 1 else 0.0
        return (recent[-1][tag] - recent[0][tag]) / seconds if seconds > 0 else None

    def newest(self, tag: str) -> float | None:
        """Return the newest value of a tag; None if there is none or it is not finite."""
        found = self.run.newest.get(tag)
        return float(found) if isinstance(found, int | float) and math.isfinite(found) else None

    @property
    def troubles(self) -> list[str]:
        """Errors of the run to show on the page, worst first.

        They are the run's own error, a crash, metrics that are not finite, and damaged lines of its metrics.
        """
        found = [self.status.error] if self.status and self.status.error else []
        found += [MEANINGS[self.verdict]] if self.verdict == "crashed" else []
        found += [f"{tag} is not a finite number since step {step:,}." for tag, step in self._not_finite().items()]
        return found + ([f"{self.damaged} damaged lines of metrics.jsonl are left out."] if self.damaged else [])

    @property
    def remarks(self) -> list[str]:
        """Warnings to show, and the newest messages of the training with their times."""
        found = [MEANINGS[self.verdict]] if self.verdict in MEANINGS and self.verdict != "crashed" else []
        newest = self.messages[-NEWEST_MESSAGES:]
        said = [f"{_clock(line.get('time'))} step {line['step']:,}: {line.get('message', '')}" for line in newest]
        return found + self.run.warnings + said

    def _not_finite(self) -> dict[str, int]:
        """Return tag -> step since which its values are not finite."""
        since = dict[str, int]()
        for line in self.run.metrics:
            for tag, value in line.items():
                if isinstance(value, float) and not math.isfinite(value):
                    since.setdefault(tag, line["step"])
                else:
                    since.pop(tag, None)
        return since


class WatchedRun:
    """Run folder that is read repeatedly while another process writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines, self._messages = GrowingLines(path / "metrics.jsonl"), GrowingLines(path / MESSAGES)
        self._files = RunFiles(path, self._lines.read)
        self._version: tuple[Any, ...] = ()
        self._changed: float | None = None
        """Monotonic time of the newest change that happened between two looks [s]; None before the first one."""

    def look(self) -> Seen | str:
        """Return the current state of the run, or the reason why it cannot be read."""
        silent = self._silence()
        status = RunStatus.read(self.path)
        found = verdict(self.path, status, silent=silent)
        try:
            run = self._files.recorded(is_over=found == "finished")
            seen = Seen(run, status, found, self._messages.read(), self._lines.damaged, silent)
            seen.check()
        except (RoboRLError, OSError) as error:
            return str(error)
        except FOREIGN as error:  # one damaged run must leave the others on the page
            return f"A file of the run is damaged. {type(error).__name__}: {error}"
        return seen

    def _silence(self) -> float:
        """Return the time since the last change of the folder [s].

        It is measured here once a change was seen, and is based on the files' times before that.
        """
        version, newest = list[Any](), 0.0
        for name in WRITTEN:
            try:
                state = (self.path / name).stat()
            except OSError:
                continue
            version += [name, state.st_ino, state.st_size, state.st_mtime_ns]
            newest = max(newest, state.st_mtime)
        now = time.monotonic()
        if self._version and tuple(version) != self._version:
            self._changed = now
        self._version = tuple(version)
        return max(0.0, time.time() - newest) if self._changed is None else now - self._changed


def _clock(seconds: Any) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds):%H:%M:%S}"
    except (TypeError, ValueError, OverflowError, OSError):
        return "?"
