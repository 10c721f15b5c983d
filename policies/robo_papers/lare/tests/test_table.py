"""The table of the page is the one that the study wrote."""

from pathlib import Path

from robo_app.experiments.archive import Archive
from robo_app.experiments.tables import study_page

PAPER = Path(__file__).parents[1]
FACTS = PAPER.parents[2] / "docs" / "benchmarks" / "lare.json"


def test_the_page_shows_what_the_study_found():
    assert study_page(Archive.read(FACTS).table).strip() in (PAPER / "page.md").read_text()
