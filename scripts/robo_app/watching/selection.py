"""Runs that are watched: named by path, name, pattern or "latest", looked up again at every refresh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path

from robo_rl.runs.run import is_run

LATEST = "latest"
MOST_RUNS = 24
"""Runs on one page; of more the newest are shown."""


class Selection:
    """Runs by name; a run that does not exist yet appears once its training has started."""

    def __init__(self, names: Sequence[str], root: Path) -> None:
        """names: paths, names under `root`, patterns, folders of several runs such as that of a sweep, or "latest"."""
        self.names, self._root = names or (LATEST,), root

    def find(self) -> tuple[list[Path], list[str], int]:
        """Return the run folders, oldest first, the names without a run so far, and the number of runs left out."""
        found, missing = dict[Path, None](), []
        for name in self.names:
            runs = dict.fromkeys(path.absolute() for path in self._runs_of(name))
            found |= runs
            missing += [] if runs else [name]
        ordered = sorted(found, key=lambda path: (_began(path), path.name))
        return ordered[-MOST_RUNS:], missing, max(0, len(ordered) - MOST_RUNS)

    def _runs_of(self, name: str) -> Iterator[Path]:
        if name == LATEST and not Path(name).exists():
            yield from sorted(_runs_in(self._root), key=_began)[-1:]
            return
        places = [place for place in (Path(name), self._root / name) if place.is_dir()][:1]
        patterns = (name, self._root / name, self._root / "*" / "runs" / name)
        for place in places or [Path(each) for pattern in patterns for each in glob(str(pattern))]:
            yield from [place] if is_run(place) else _runs_in(place)


def _runs_in(folder: Path) -> Iterator[Path]:
    """Yield the runs of a folder, those of several trainings in it included."""
    for pattern in ("*", "runs/*", "*/runs/*"):
        yield from filter(is_run, folder.glob(pattern))


def _began(path: Path) -> float:
    """Return the time at which a run was made; a run that was removed meanwhile is the oldest."""
    try:
        return (path / "spec.json").stat().st_mtime
    except OSError:
        return 0.0
