"""Films for the page: those of final evaluations, and of newest episodes, drawn one by one in low-priority processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from robo_app.watching.watched_run import Seen
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.newest_episode import KINDS, Kind, NewestEpisode, newest_file

MOST_FINAL = 2
"""Largest number of films of a final evaluation that are shown."""
MANY_RUNS = 4
"""Number of runs above which the page shows a single film of each."""
TIMEOUT = 120.0
"""Time limit for drawing a film [s]."""
REST = 4.0
"""Pause after drawing a film, as a multiple of the time it took, so that trainings keep the processor. There is no pause while
a run has no film yet."""


@dataclass(frozen=True)
class Film:
    """A film of a run, or the reason why there is none."""

    caption: str
    success: bool | None = None
    path: Path | None = None
    note: str = ""

    @property
    def outcome(self) -> str:
        """Return "success", "failure" or ""."""
        return {True: "success", False: "failure", None: ""}[self.success]


@dataclass(frozen=True)
class _Request:
    run: Path
    kind: Kind
    version: tuple[int, int]
    """Version of the episode's file: inode and time of its change."""


class Films:
    """Provides films of runs. A thread draws their newest episodes; a film is kept until the next one of its run is drawn."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="robo-rl-watch-")
        self._drawn: dict[tuple[Path, Kind], tuple[_Request, Film]] = {}
        self._waiting: dict[tuple[Path, Kind], _Request] = {}
        self._changes = threading.Condition()
        self._count, self._is_open = 0, True
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._work, name="films", daemon=True)
        self._thread.start()

    def of(self, seen: Seen, runs: int) -> list[Film]:
        """Return the films of a run that exist now, and request newer ones.

        seen: state of the run. runs: number of runs on the page.
        """
        run = seen.run.path
        final = _final_films(run, seen.run.final)[: MOST_FINAL if runs <= MANY_RUNS else 1]
        if final:
            return final
        found = [film for kind in reversed(KINDS) if (film := self._newest(run, kind)) is not None]
        return found if runs <= MANY_RUNS else found[:1]

    def draw_waiting(self) -> None:
        """Block until all films that were requested have been drawn."""
        with self._changes:
            self._changes.wait_for(lambda: not self._waiting)

    def close(self) -> None:
        """Stop drawing and remove the films."""
        with self._changes:
            self._is_open = False
            self._changes.notify_all()
            if self._process is not None:
                self._process.kill()
        self._thread.join()
        self._folder.cleanup()

    def _newest(self, run: Path, kind: Kind) -> Film | None:
        try:
            state = newest_file(run, kind).stat()
        except OSError:
            return None
        request, key = _Request(run, kind, (state.st_ino, state.st_mtime_ns)), (run, kind)
        with self._changes:
            before, film = self._drawn.get(key, (None, None))
            if before != request:
                self._waiting[key] = request
                self._changes.notify_all()
        return film or Film(_KIND[kind], note="is being drawn")

    def _work(self) -> None:
        while True:
            with self._changes:
                self._changes.wait_for(lambda: self._waiting or not self._is_open)
                if not self._is_open:
                    return
                key, request = min(self._waiting.items(), key=lambda each: each[0] in self._drawn)  # new ones first
            started = time.monotonic()
            film = self._draw(request)
            with self._changes:
                _, old = self._drawn.get(key, (None, None))
                self._drawn[key] = request, film
                if self._waiting[key] == request:
                    del self._waiting[key]
                else:
                    self._waiting[key] = self._waiting.pop(key)  # behind the other runs
                self._changes.notify_all()
                rest = REST * (time.monotonic() - started) if all(each in self._drawn for each in self._waiting) else 0.0
                self._changes.wait_for(lambda: not self._is_open, rest)
            if old is not None and old.path is not None:
                old.path.unlink(missing_ok=True)

    def _draw(self, request: _Request) -> Film:
        self._count += 1
        episode, out = (Path(self._folder.name) / f"{self._count}{ending}" for ending in (".npz", ".mp4"))
        caption, newest = _KIND[request.kind], None
        try:
            shutil.copyfile(newest_file(request.run, request.kind), episode)  # which the training may replace meanwhile
            newest = NewestEpisode.read(episode)
            caption = caption if newest is None else _caption(newest)
            said = self._film(request.run, episode, out)
        except OSError as error:
            said = str(error)
        finally:
            episode.unlink(missing_ok=True)
        film = Film(caption, None if newest is None else newest.success)
        return replace(film, path=out) if not said else replace(film, note=f"cannot be drawn: {said}")

    def _film(self, run: Path, episode: Path, out: Path) -> str:
        """Draw a film in a process of its own; return "", or the reason why it could not be drawn."""
        command = [sys.executable, "-m", "robo_app.watching.filming", str(run), str(episode), str(out)]
        with self._changes:
            if not self._is_open:
                return "ended"
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        with self._process as process:
            try:
                said, _ = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
                return f"not drawn within {TIMEOUT:.0f} s"
        lines = said.strip().splitlines()
        return "" if process.returncode == 0 and out.exists() else (lines[-1] if lines else f"exit {process.returncode}")


_KIND: dict[Kind, str] = {"training": "newest training episode", "evaluation": "newest evaluation"}


def _caption(newest: NewestEpisode) -> str:
    facts = [f"step {newest.step:,}", f"{len(newest.actions)} steps", f"return {newest.episode_return:.3g}"]
    return " · ".join([_KIND[newest.kind], *facts, f"ended by {newest.stop_reason}"])


def _final_films(run: Path, final: Evaluation | None) -> list[Film]:
    """Return the films of the final evaluation in a run's folder."""
    films = []
    for seed, name in ({} if final is None else final.videos).items():
        path = run / "videos" / Path(name).name
        if final is not None and path.is_file():
            success = final.successes[final.seeds.index(seed)] if seed in final.seeds else None
            films.append(Film(f"final evaluation · seed {seed}", success, path))
    return films
