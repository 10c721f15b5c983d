"""The runs to watch, given by path, name, pattern or "latest", and looked up again at every refresh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path

from robo_rl.runs.run import is_run

LATEST = "latest"
MOST_RUNS = 24
"""Largest number of runs on the page; of more the newest are shown."""


class Selection:
    """The runs that a user wants to watch. A run that does not exist yet appears once its training has started."""

    def __init__(self, names: Sequence[str], root: Path) -> None:
        """Select runs.

        names: paths, names in the folder `root`, patterns, folders with several runs (such as that of a sweep), or "latest",
        which is also the default.
        """
        self.names, self._root = names or (LATEST,), root

    def find(self) -> tuple[list[Path], list[str], int]:
        """Return the folders of the runs, oldest first, the names without a run so far, and the number of runs left out."""
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
    """Yield the runs in a folder, also those in the folders of sweeps and experiments in it."""
    for pattern in ("*", "runs/*", "*/runs/*"):
        yield from filter(is_run, folder.glob(pattern))


def _began(path: Path) -> float:
    """Return the time at which a run was made [s]; 0 if it has been removed."""
    try:
        return (path / "spec.json").stat().st_mtime
    except OSError:
        return 0.0
