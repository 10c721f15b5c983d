"""Show progress: a live bar on a terminal, a plain line every 15 s in a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typing_extensions import override

from robo_app.display.plain_console import PlainConsole
from robo_rl.errors import InvalidSetting, printable, printable_lines
from robo_rl.types import Metrics

Item = TypeVar("Item")
PLAIN_PERIOD = 15.0  # [s] between two lines in a pipe
_PROGRESS: ContextVar[bool] = ContextVar("progress", default=True)


class HasJson(Protocol):
    """Result of a command."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""


class Shown:
    """Display of progress, a context manager. This base class shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the display."""

    def update(self, step: int, metrics: Metrics) -> None:
        """Show that `step` was reached; `metrics` has the newest value of every tag."""

    def say(self, message: str) -> None:
        """Print a line that stays on the screen."""


class LiveDisplay(Shown):
    """Progress bar with success rate, return, speed and remaining time."""

    def __init__(self, title: str, total: int, unit: str, console: Console) -> None:
        self._unit = unit
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[summary]}"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=60,
        )
        self._task = self._progress.add_task(escape(printable(title)), total=total, summary="")

    @override
    def __enter__(self) -> Self:
        self._progress.start()
        return self

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    @override
    def update(self, step: int, metrics: Metrics) -> None:
        speed = self._progress.tasks[0].speed
        self._progress.update(self._task, completed=step, summary=summary(metrics, speed, self._unit))

    @override
    def say(self, message: str) -> None:
        self._progress.console.print(printable_lines(message), highlight=False, markup=False, soft_wrap=True)


class PlainDisplay(Shown):
    """Progress as a line every 15 s, for pipes and logs."""

    def __init__(self, title: str, total: int, unit: str) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._started = self._shown = time.monotonic()
        self._first: int | None = None
        self._shown_step = -1

    @override
    def update(self, step: int, metrics: Metrics) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = step
        is_due = now - self._shown >= PLAIN_PERIOD or step >= self._total
        if not is_due or step == self._shown_step:
            return
        self._shown, self._shown_step = now, step
        speed = (step - self._first) / max(now - self._started, 1e-9)
        left = f" | {(self._total - step) / speed:.0f} s left" if speed > 0 and step < self._total else ""
        self.say(f"{self._title} {step}/{self._total} | {summary(metrics, speed, self._unit)}{left}")

    @override
    def say(self, message: str) -> None:
        print(printable_lines(message), flush=True)


@contextmanager
def showing(progress: bool) -> Iterator[None]:
    """Switch the display of progress on or off inside the block, for this thread; raises InvalidSetting unless it is a bool."""
    if not isinstance(progress, bool):
        fix = "callbacks=[...] takes objects that hear of a training" if hasattr(progress, "update") else None
        raise InvalidSetting("Progress cannot be shown there.", got=repr(progress), allowed="True or False", fix=fix)
    before = _PROGRESS.set(progress)
    try:
        yield
    finally:
        _PROGRESS.reset(before)


def display(title: str, total: int, unit: str = "steps") -> Shown:
    """Return the display of progress for this process: none if `showing` switched it off, else a bar or lines.

    title: words in front. total: last step. unit: unit of the steps.
    """
    if not _PROGRESS.get():
        return Shown()
    return LiveDisplay(title, total, unit, PlainConsole()) if sys.stdout.isatty() else PlainDisplay(title, total, unit)


def say(message: str) -> None:
    """Print lines, unless `showing` switched progress off."""
    if _PROGRESS.get():
        print(printable_lines(message), flush=True)


def show_result(as_json: bool, title: str, found: HasJson, end: str = "") -> int:
    """Print a result as JSON, or as text between `title` and `end`; returns the exit status 0."""
    print(json.dumps(found.to_json()) if as_json else f"{title}{found}{end}", flush=True)
    return 0


def counted(title: str, unit: str, items: Sequence[Item], metrics: Callable[[], Metrics] = dict) -> Iterator[Item]:
    """Yield items, and show how many were yielded and the current `metrics()`."""
    with display(title, len(items), unit) as shown:
        for done, item in enumerate(items, 1):
            yield item
            shown.update(done, metrics())


def summary(metrics: Metrics, speed: float | None, unit: str = "steps") -> str:
    """Return the most important metrics and the speed as a line of text.

    speed: units per second, None if not known yet. unit: unit of the steps.
    """
    parts = {
        "success {:.0%}": metrics.get("rollout/success_rate"),
        "eval {:.0%}": metrics.get("eval/success_rate"),
        "by a person {:.0%}": metrics.get("human/intervention_rate"),
        "return {:.2f}": metrics.get("rollout/ep_rew_mean"),
        "{:.0f} asked": metrics.get("judge/asked"),
        "{:.4g} tokens": metrics.get("judge/tokens"),
        "cost {:.4g}": metrics.get("judge/cost"),
        "{:.3g} " + unit + "/s" if unit != "steps" else "{:.0f} steps/s": speed,
    }
    return " | ".join(form.format(value) for form, value in parts.items() if value is not None)
