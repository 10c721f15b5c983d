"""The tables and figures of the page are those that the study and its evaluations wrote."""

import json
from pathlib import Path

import pytest

from robo_cli.experiments.compare import Compare
from robo_cli.experiments.compare import run as compare

PAGE = Path(__file__).parents[1] / "page.md"
BENCHMARKS = Path(__file__).parents[4] / "docs" / "benchmarks"


@pytest.mark.slow
def test_contrasting_goals_figures_match_evaluations(capsys):
    sides = [str(BENCHMARKS / "driving-evaluations.zip" / f"driving-{method}-*.json") for method in ("speed", "clg")]
    assert compare(Compare(*sides, json=True)) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"]
    page = PAGE.read_text()
    fewer = found["collision_vehicle"]["mean_difference"]
    low, high = (-100 * fewer[end] for end in ("high", "low"))
    assert f"{-100 * fewer['estimate']:.1f} of a hundred episodes fewer [{low:.1f}, {high:.1f}]" in page
    score = found["driving_score"]["mean_difference"]
    assert f"{score['estimate']:.1f} more of the driving score [{score['low']:.1f}, {score['high']:.1f}]" in page
