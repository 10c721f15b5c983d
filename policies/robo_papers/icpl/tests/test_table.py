"""The table of the page is what the searches found."""

import json
from pathlib import Path

PAPER = Path(__file__).parents[1]
FACTS = PAPER.parents[2] / "docs" / "benchmarks" / "icpl.json"


def test_the_page_shows_what_the_searches_by_preferences_found():
    page = (PAPER / "page.md").read_text()
    for each in json.loads(FACTS.read_text()):
        confirmed, chance = each["confirmed"], each["chosen by chance"].values()
        cells = [f"{each['score']:.0%}", ", ".join(f"{rate:.0%}" for rate in confirmed)]
        cells += [f"**{sum(confirmed) / len(confirmed):.0%}**", *(f"{rate:.0%}" for rate in chance)]
        assert f"| {each['seed']} | {' | '.join(cells)} |" in page
