"""View of all watched runs as HTML, for the live page and for snapshots."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from robo_app.watching.films import Film, Films
from robo_app.watching.selection import Selection
from robo_app.watching.watched_run import Seen, WatchedRun
from robo_rl.report import template
from robo_rl.report.curves import Charts, Curves
from robo_rl.report.reading import labelled
from robo_rl.runs.run import write_text

PACKAGE = "robo_app.watching"
SHARE = 10.0
"""A repeated view is drawn again at most after this multiple of the time that drawing took."""
OWN_CHARTS = ("eval/", "reward/model_return", "time/")
"""Beginnings of tags that the learning curves and the table already show."""
PARTS: Sequence[tuple[str, Callable[[str], bool]]] = (
    ("Training episodes", lambda tag: tag.startswith("rollout/")),
    ("Interventions", lambda tag: tag.startswith("human/")),
    ("Rewards by term", lambda tag: tag.startswith(("terms/", "reward/")) and tag != "reward/model_return"),
    ("Speed and memory", lambda tag: tag == "time/fps" or tag.startswith("replay/")),
)
"""Title, and condition on a tag, of each group of charts below the learning curves."""


class View:
    """Reads the selected runs and draws them as HTML; several threads may use it."""

    def __init__(self, selection: Selection, films: Films, source: Callable[[Path], str]) -> None:
        """Make a view.

        selection: the runs. films: provides films. source: function from a film's file to its address on the page.
        """
        self._selection, self._films, self._source = selection, films, source
        self._runs: dict[Path, WatchedRun] = {}
        self._lock = threading.Lock()
        self._drawn, self._drawn_at, self._cost = "", float("-inf"), 0.0
        self._template = template("view", PACKAGE)

    def html(self, newest: float = 0.0) -> str:
        """Return the HTML of the page's parts; a view that is at most `newest` seconds old may be returned again."""
        with self._lock:
            started = time.monotonic()
            if started - self._drawn_at > max(newest, self._cost * SHARE if newest else 0.0):
                self._drawn = self._draw()
                self._drawn_at = time.monotonic()
                self._cost = self._drawn_at - started
            return self._drawn

    def _draw(self) -> str:
        paths, missing, left_out = self._selection.find()
        self._runs = {path: self._runs.get(path) or WatchedRun(path) for path in paths}
        looks = {path: run.look() for path, run in self._runs.items()}
        unread = {path.name: reason for path, reason in looks.items() if isinstance(reason, str)}
        seen = [each for each in looks.values() if isinstance(each, Seen)]
        curves = Curves(labelled([each.run for each in seen]))
        return self._template.render(
            names=self._selection.names,
            missing=missing,
            left_out=left_out,
            unread=unread,
            runs=list(zip(curves.runs, curves.colors, seen, strict=True)),
            films=self._films_of(curves, seen),
            legend=curves.legend,
            charts=curves.evaluations(means=True),
            parts=[(title, charts) for title, wanted in PARTS if (charts := curves.metrics(wanted))],
            details=_details(curves),
        )

    def _films_of(self, curves: Curves, seen: Sequence[Seen]) -> list[tuple[str, str, int, Film, str]]:
        """Return for each film (key, label of its run, colour number, film, address of the file)."""
        return [
            (f"{run.path.name}/{place}", run.label, color, film, "" if film.path is None else self._source(film.path))
            for run, color, each in zip(curves.runs, curves.colors, seen, strict=True)
            for place, film in enumerate(self._films.of(each, len(seen)))
        ]


def _details(curves: Curves) -> Charts:
    """Return charts of all tags that no other part of the page shows."""

    def is_left(tag: str) -> bool:
        return "/" in tag and not tag.startswith(OWN_CHARTS) and not any(wanted(tag) for _, wanted in PARTS)

    return curves.metrics(is_left)


def write_snapshot(selection: Selection, title: str, out: Path) -> Path:
    """Write the current page, films included, to one HTML file that needs no server; returns its path."""
    with closing(Films()) as films:
        view = View(selection, films, _embedded)
        view.html()
        films.draw_waiting()
        body = view.html()
    page = template("snapshot", PACKAGE).render(
        title=title,
        written=f"{datetime.now():%d %B %Y, %H:%M}",
        page_style=Markup(files(PACKAGE).joinpath("page.css").read_text()),
        body=Markup(body),  # escaped by its own template
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page)
    return out


def _embedded(film: Path) -> str:
    return f"data:video/mp4;base64,{base64.b64encode(film.read_bytes()).decode()}"
