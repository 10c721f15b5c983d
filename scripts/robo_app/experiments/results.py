"""Results of a study that trains and evaluates by itself, kept in an archive as soon as each is there.

`results.measured("ER", seed, lambda: {"score": train_and_score(seed)})` trains unless the archive has that result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from robo_app.display.markdown_tables import table_lines
from robo_app.experiments.archive import Archive, require_own
from robo_app.experiments.records import Circumstances, Figures, Record
from robo_rl.runs.run import circumstances
from robo_rl.settings import plain
from robo_rl.system.durable_files import locked_folder


class Results:
    """Archive of a study's results by method, dataset or task, and seed; a result with the same settings is not made again.

    Args:
        study: Name of the study.
        file: File of the archive; it need not exist.
        settings: Settings of all results, such as steps and episodes.

    Raises:
        RunError: The file is damaged, or of another study.
    """

    def __init__(self, study: str, file: Path, settings: Mapping[str, Any]) -> None:
        self._study, self._file, self._settings = study, file, settings
        self.archive = self._read()

    def measured(
        self, method: str, seed: int, measure: Callable[[], Figures], *, on: str = "", **settings: Any
    ) -> Mapping[str, Any]:
        """Return the figures of a result: those in the archive, else those that `measure` returns, which are kept.

        Args:
            method: Name of the method.
            seed: Seed of the training.
            measure: Function that trains and evaluates.
            on: Dataset or task.
            settings: Settings of the method.
        """
        wanted = json.loads(json.dumps(plain({**self._settings, **settings, "method": method}), default=str))
        known = self.archive.by_cell.get((method, on, seed))
        if known is not None and known.counts(wanted, {}):
            return known.figures
        started, begin = datetime.now().astimezone().isoformat(timespec="seconds")[:19], time.monotonic()
        figures = {name: _plain(value) for name, value in measure().items()}
        seconds = round(time.monotonic() - begin, 1)
        record = Record(method, on, seed, wanted, {}, _here(), started, seconds=seconds, figures=figures)
        with locked_folder(self._file.parent):  # another process may add at the same time
            self.archive = self._read().with_records([record])
            self.archive.write(self._file)
        return figures

    def page(self) -> str:
        """Return the table in Markdown."""
        return results_page(self.archive)

    def _read(self) -> Archive:
        found = require_own(self._file, self._study) or Archive(self._study, "results")
        return replace(found, plan={"settings": json.loads(json.dumps(plain(self._settings), default=str))})


def add_archive_option(parser: argparse.ArgumentParser, study: str) -> None:
    """Add `--archive FILE` to the options of a study."""
    file = Path("studies") / f"{study}.json"
    words = "archive to add to; what it holds with the same settings is not made again (default: %(default)s)"
    parser.add_argument("--archive", type=Path, default=file, metavar="FILE", help=words)


def results_page(archive: Archive) -> str:
    """Return a row for each method, with the mean over seeds of each figure, and the value of each seed."""
    names = list(dict.fromkeys(name for record in archive.records for name in record.figures))
    rows, has_on = [], any(record.on for record in archive.records)
    for method, on in dict.fromkeys((record.method, record.on) for record in archive.records):
        records = archive.of(method, on)
        cells = [_cell([record.figures.get(name) for record in records.values()]) for name in names]
        rows.append([*([on] if has_on else []), method, ", ".join(map(str, records)), *cells])
    return "\n".join(table_lines([*(["on"] if has_on else []), "method", "seeds", *names], rows)) + "\n"


def _cell(values: Sequence[float | Sequence[float] | None]) -> str:
    means = [None if value is None else float(np.mean(value)) for value in values]
    known = [value for value in means if value is not None]
    if not known:
        return ""
    if len(means) == 1:
        return _short(known[0])
    return f"**{_short(float(np.mean(known)))}** ({', '.join('' if mean is None else _short(mean) for mean in means)})"


def _short(value: float) -> str:
    """Return a number as text: three significant digits, and all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _here() -> Circumstances:
    """Return program and machine of this process."""
    found = circumstances()
    packages = {name: version for name, version in found["packages"].items() if version}
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0
    return Circumstances(found["commit"] or "", packages, found["python"], found["machine"], threads)


def _plain(value: Any) -> Any:
    """Return a number, or a list of numbers, as plain Python values that JSON can hold."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return [float(each) for each in np.asarray(value).ravel()] if np.ndim(value) else float(value)
