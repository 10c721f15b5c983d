"""The table of the page is what the searches found."""

from pathlib import Path

from robo_app.experiments.archive import Archive

PAPER = Path(__file__).parents[1]
FACTS = PAPER.parents[2] / "docs" / "benchmarks" / "icpl.json"


def test_the_page_shows_what_the_searches_by_preferences_found():
    page = (PAPER / "page.md").read_text()
    for record in Archive.read(FACTS).records:
        confirmed = record.figures["confirmed"]
        cells = [f"{record.figures['score']:.0%}", ", ".join(f"{rate:.0%}" for rate in confirmed)]
        cells += [f"**{sum(confirmed) / len(confirmed):.0%}**"]
        cells += [f"{record.figures[f'chance of {rounds}']:.0%}" for rounds in ("first round", "all rounds")]
        assert f"| {record.seed} | {' | '.join(cells)} |" in page
