"""The table of the page is the one that the race wrote."""

from pathlib import Path

from robo_app.experiments.archive import Archive
from robo_app.experiments.race_table import race_page

PAPER = Path(__file__).parents[1]
FACTS = PAPER.parents[2] / "docs" / "benchmarks" / "beacons.json"


def test_the_page_shows_the_table_of_the_race():
    assert race_page(Archive.read(FACTS).table).strip() in (PAPER / "page.md").read_text()
