"""Find runs for a command line: by path, by name, or several by a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from glob import glob, has_magic
from pathlib import Path

from robo_rl.errors import RunNotFound
from robo_rl.runs.archive import resolve_archive
from robo_rl.runs.run import Run, find_run, is_run


def find_runs(name: str, root: Path) -> list[Run]:
    """Return the run with a path or name, or all runs that a pattern matches.

    name: path, name of a folder in `root`, "latest", or a pattern of these. It may lead into an archive, such as
    study.zip/*-sac-*. Raises RunNotFound.
    """
    root = Path(resolve_archive(str(root)))
    place = resolve_archive(name)
    if not has_magic(place) or Path(place).is_dir():
        return [find_run(place, root)]
    paths = {Path(path).resolve() for path in (*glob(place), *glob(str(root / place)))}
    runs = [Run(path) for path in sorted(paths) if is_run(path)]
    if not runs:
        raise RunNotFound(
            f"No run matches {name!r}.", got=name, allowed="a pattern of run folders", fix=f"runs are looked for in {root}/"
        )
    return runs


def find_files(pattern: str) -> list[Path]:
    """Return the file with a path, or all files that a pattern matches, also in an archive; raises RunNotFound."""
    place = resolve_archive(pattern)
    paths = sorted(Path(path) for path in ([place] if Path(place).is_file() else glob(place)) if Path(path).is_file())
    if not paths:
        raise RunNotFound(f"No file matches {pattern!r}.", got=pattern, allowed="a file or a pattern of files")
    return paths


def runs_of(name: str, seed: int, runs: Path) -> Iterator[Path]:
    """Yield the folders of the runs in `runs` with a name and a seed, the newest first."""
    for recipe in sorted(runs.glob(f"*-{name}-{seed}/recipe.yaml"), reverse=True):
        if recipe.parent.name.split("-", 2)[2] == f"{name}-{seed}":  # the part before is date and time
            yield recipe.parent
