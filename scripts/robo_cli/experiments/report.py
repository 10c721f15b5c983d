"""robo-rl report: one HTML page about one or several runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.run_selection import find_runs
from robo_rl.report import write_report
from robo_rl.runs.archive import resolve_archive

EXAMPLES = """robo-rl report latest
robo-rl report '*-arm-pick-rlpd-*' --out rlpd.html     (training seeds on one page)
robo-rl report RUN_A RUN_B
robo-rl report 'study.zip/*-sac-*' --out sac.html     (runs of an archive)"""


@dataclass(frozen=True)
class Report:
    """Write one HTML page that needs no network: result, films, curves, evaluation, time, recipe, versions."""

    run: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Runs: path, name, "latest", or a pattern such as "*-arm-pick-rlpd-*"."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Page to write; by default report.html in the run, or in the folder of the runs if there are several or
    they are in an archive."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def run(arguments: Report) -> int:
    """Write the page and print its path."""
    found = [each for name in arguments.run or ("latest",) for each in find_runs(name, arguments.runs)]
    paths = list(dict.fromkeys(each.path for each in found))
    is_archived = any(resolve_archive(name) != name for name in arguments.run)
    out = arguments.out or (paths[0] if len(paths) == 1 and not is_archived else arguments.runs) / "report.html"
    print(write_report(paths, out))
    return 0
