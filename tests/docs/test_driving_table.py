"""The table of drive-town on the driving page is that of the archived evaluations."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from robo_rl.evaluation.evaluation import Evaluation

ROOT = Path(__file__).parents[2]
PAGE, ARCHIVE = ROOT / "docs" / "driving" / "carla.md", ROOT / "docs" / "benchmarks" / "drive-town.zip"
KINDS = "collision_vehicle", "collision_walker", "red_light"


def line_of(label: str, evaluations: list[Evaluation]) -> str:
    """Return the row of a table: routes of all evaluations together."""
    done = sum(sum(map(bool, each.successes)) for each in evaluations)
    count = sum(map(len, evaluations))
    low, high = (100 * end for end in wilson(done, count))
    measured = {name: [value for each in evaluations for value in each.measured[name]] for name in evaluations[0].measured}
    by_name = {measure.name: measure for measure in evaluations[0].measures}

    def cell(name: str) -> str:
        interval = by_name[name].interval(measured)
        return f"{interval.estimate:.2g} [{interval.low:.2g}, {interval.high:.2g}]"

    score = by_name["driving_score"].interval(measured)
    cells = [f"{done} of {count}, {low:.0f} to {high:.0f} %", f"{score.estimate:.0f}", *map(cell, KINDS)]
    return f"| {label} | {' | '.join(cells)} |"


def wilson(done: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the ends of Wilson's 95 % interval, by its formula."""
    share, middle = done / count, (done + z * z / 2) / (count + z * z)
    half = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5 / (1 + z * z / count)
    return middle - half, middle + half


def archived() -> dict[str, list[Evaluation]]:
    """Return label -> evaluations; those of several towns count as one."""
    found: dict[str, list[Evaluation]] = {}
    with zipfile.ZipFile(ARCHIVE) as archive:
        for name in sorted(archive.namelist()):
            for pattern, label in LABELS.items():
                if name.endswith(".json") and pattern in name:
                    found.setdefault(label, []).append(Evaluation.from_json(json.loads(archive.read(name))))
                    break
    return found


LABELS = {
    "same-rows/expert.json": "the script, seen town",
    "same-rows/expert-grid_test": "the script, four other towns",
    "same-rows/blind.json": "the script, blind, seen town",
    "same-rows/blind-grid_test": "the script, blind, four other towns",
    "same-rows/mlp.json": "the same rows, an MLP",
    "same-rows/mlp-in-units": "the same rows, an MLP of metres",
    "same-rows/shuffled-labels": "the same rows, shuffled labels",
    "evaluations/map=grid_test": "`drive-town`, four towns never seen",
    "walkers=4": "`drive-town`, seen town, 4 walkers",
    "/evaluation.json": "`drive-town`, seen town",
}
"""Part of a file's name -> row of the table."""


@pytest.mark.parametrize("label", archived() if ARCHIVE.exists() else [])
def test_row_is_that_of_the_archive(label: str) -> None:
    assert line_of(label, archived()[label]) in PAGE.read_text().splitlines()
