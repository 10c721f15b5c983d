"""Grids of perturbations: their cells, resumed evaluations, the worst, and the page."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from robo_rl.errors import InvalidSetting, RunError
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.robustness import measure, name_of, plan_of
from robo_rl.report.robustness_page import write_robustness
from robo_sims.perturbed import Perturbation

NOMINAL = asdict(Perturbation())
PLAN = plan_of("mine", {"grids": [{"mass": [0.5, 1, 2], "latency": [0, 1]}, {"latency": [0, 1, 2]}]}, NOMINAL)


def judged(cell, *, has_success=True):
    """Return an evaluation that is the worse the later actions come."""
    wins = 4 - int(cell.get("latency", 0)) - (cell.get("mass", 1.0) == 0.5)
    successes = tuple(number < wins for number in range(4)) if has_success else (None,) * 4
    returns = tuple(float(wins + number) for number in range(4))
    return Evaluation("made/Up-v0", "f", "<rule>", (1, 2, 3, 4), returns, (5,) * 4, successes, ("goal",) * 4, True, 1.0)


def test_cells_are_different_and_start_with_the_nominal_one():
    assert [name_of(cell) for cell in PLAN.cells] == [
        *("nominal", "mass=0.5", "latency=1,mass=0.5", "latency=1", "mass=2", "latency=1,mass=2", "latency=2"),
    ]


def test_worst_and_matrix_are_those_of_the_cells(tmp_path):
    found = measure(PLAN, tmp_path, judged, lambda line: None)
    assert name_of(found.worst) == "latency=1,mass=0.5"
    assert [[each.estimate for each in row] for row in found.matrix(PLAN.grids[0])] == [[0.75, 0.5], [1.0, 0.75], [1.0, 0.75]]
    assert [each.estimate for each in found.matrix(PLAN.grids[1])[0]] == [1.0, 0.75, 0.5]
    assert found.to_json()["worst"] == "latency=1,mass=0.5" and found.to_json()["cells"]["nominal"]["estimate"] == 1.0


def test_evaluated_cells_are_kept_after_an_interruption(tmp_path):
    seen = []

    def interrupted(cell):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(name_of(cell))
        return judged(cell)

    with pytest.raises(KeyboardInterrupt):
        measure(PLAN, tmp_path, interrupted, lambda line: None)
    more = []
    measure(PLAN, tmp_path, lambda cell: more.append(name_of(cell)) or judged(cell), lambda line: None)
    assert len(seen) == 3 and len(more) == 4 and not {*seen} & {*more}


def test_damaged_cell_is_one_error(tmp_path):
    (tmp_path / "nominal.json").write_text('{"seeds": 3}')
    with pytest.raises(RunError, match="damaged"):
        measure(PLAN, tmp_path, judged, lambda line: None)


@pytest.mark.parametrize("has_success", [True, False])
def test_page_and_table_show_every_cell(tmp_path, has_success):
    found = measure(PLAN, tmp_path, lambda cell: judged(cell, has_success=has_success), lambda line: None)
    page = write_robustness(found, tmp_path / "page.html", policy="<b>me</b>").read_text()
    assert page.count('class="fill c0"') == 9 and "<b>me" not in page and "http" not in page
    assert all(name_of(cell) in page for cell in PLAN.cells)
    assert "latency=1,mass=0.5" in str(found) and "mass (down), latency (across)" in str(found)


def test_equal_figures_have_a_page_too(tmp_path):
    found = measure(PLAN, tmp_path, lambda cell: judged({}, has_success=False), lambda line: None)
    assert "opacity" in write_robustness(found, tmp_path / "page.html", policy="me").read_text()


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"grids": []},
        {"grids": [{}], "more": 1},
        {"grids": [{"mass": [1]}], "adversary": {"force": 3}},
        {"grids": [{"mass": [1], "friction": [1], "noise": [0]}]},
        {"grids": [{"weight": [1]}]},
        {"grids": [{"mass": [1, 1.0]}]},
        {"grids": [{"mass": []}]},
        {"grids": [{"mass": ["1"]}]},
        {"grids": [{"mass": 2}]},
    ],
)
def test_unusable_plan_is_one_error(content):
    with pytest.raises(InvalidSetting):
        plan_of("mine", content, NOMINAL)
