"""The table of drive-town on the driving page is that of the archived evaluations."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import student_interval, wilson

ROOT = Path(__file__).parents[2]
PAGE, ARCHIVE = ROOT / "docs" / "driving" / "carla.md", ROOT / "docs" / "benchmarks" / "drive-town.zip"
KINDS = "collision_vehicle", "collision_walker", "red_light"


def line_of(label: str, by_seed: dict[str, list[Evaluation]]) -> str:
    """Return the row of a table: finished routes of each training, the mean with its interval, measures over all routes."""
    done = [sum(sum(map(bool, each.successes)) for each in found) for found in by_seed.values()]
    counts = [sum(map(len, found)) for found in by_seed.values()]
    (count,) = {*counts}
    differ = len({*done}) > 1
    shown = student_interval([each / count for each in done]) if differ else wilson(sum(done), sum(counts))
    low, high = (100 * min(max(end, 0.0), 1.0) for end in (shown.low, shown.high))
    every = [each for found in by_seed.values() for each in found]
    measured = {name: [value for each in every for value in each.measured[name]] for name in every[0].measured}
    by_name = {measure.name: measure for measure in every[0].measures}

    def cell(name: str) -> str:
        interval = by_name[name].interval(measured)
        return f"{interval.estimate:.2g} [{interval.low:.2g}, {interval.high:.2g}]"

    score = by_name["driving_score"].interval(measured)
    finished = f"{', '.join(map(str, done))} of {count}"
    cells = [finished, f"{100 * shown.estimate:.0f} [{low:.0f}, {high:.0f}]", f"{score.estimate:.0f}", *map(cell, KINDS)]
    return f"| {label} | {' | '.join(cells)} |"


def archived() -> dict[str, dict[str, list[Evaluation]]]:
    """Return label -> training -> evaluations; those of several towns count as one."""
    found: dict[str, dict[str, list[Evaluation]]] = {}
    with zipfile.ZipFile(ARCHIVE) as archive:
        for name in sorted(archive.namelist(), key=lambda name: name.rsplit("drive-town-")[-1]):
            for pattern, label in LABELS.items():
                if name.endswith(".json") and pattern in name:
                    evaluation = Evaluation.from_json(json.loads(archive.read(name)))
                    found.setdefault(label, {}).setdefault(name.partition("/")[0], []).append(evaluation)
                    break
    return found


LABELS = {
    "same-rows/expert.json": "the script, seen town",
    "same-rows/expert-grid_test": "the script, four other towns",
    "same-rows/expert-walkers=4": "the script, seen town, 4 walkers",
    "same-rows/expert-route_length=1000": "the script, seen town, 1 km",
    "same-rows/blind.json": "the script, blind, seen town",
    "same-rows/blind-grid_test": "the script, blind, four other towns",
    "same-rows/mlp.json": "the same rows, an MLP",
    "same-rows/mlp-in-units": "the same rows, an MLP of metres",
    "same-rows/shuffled-labels": "the same rows, shuffled labels",
    "evaluations/map=grid_test": "`drive-town`, four towns never seen",
    "walkers=4": "`drive-town`, seen town, 4 walkers",
    "route_length=1000": "`drive-town`, seen town, 1 km",
    "/evaluation.json": "`drive-town`, seen town",
}
"""Part of a file's name -> row of the table."""


@pytest.mark.parametrize("label", archived() if ARCHIVE.exists() else [])
def test_row_is_that_of_the_archive(label: str) -> None:
    assert line_of(label, archived()[label]) in PAGE.read_text().splitlines()
