"""The table of the offline learners on the page is the one that the study wrote."""

import json
from pathlib import Path

from robo_cli.study_plan import read_study
from robo_cli.study_table import markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_the_table_of_the_study():
    facts = json.loads((DOCS / "benchmarks" / "offline.json").read_text())
    lines = markdown(facts, list(read_study("offline").methods)).strip()
    assert lines in (DOCS / "offline.md").read_text()


def test_every_score_is_the_mean_of_its_seeds():
    facts = json.loads((DOCS / "benchmarks" / "offline.json").read_text())
    cells = [cell for row in facts["datasets"].values() for cell in row["methods"].values()]
    assert cells
    for cell in cells:
        assert len(cell["seeds"]) == len(cell["scores"])
        assert abs(cell["score"] - sum(cell["scores"]) / len(cell["scores"])) < 0.02
