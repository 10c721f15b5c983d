"""Tables of results on pages are those of their archives, and those without one say so."""

from pathlib import Path

import pytest
from page_tables import MARKED, main, rendered, untraced

from robo_app.experiments.archive import Archive
from robo_app.experiments.levels import archive_named, seed_values
from robo_app.experiments.plan import read_plan

ROOT = Path(__file__).parents[2]
DOCS, ARCHIVES = ROOT / "docs", ROOT / "docs" / "benchmarks"
PAGES = sorted(
    file
    for file in (ROOT / "README.md", *DOCS.rglob("*.md"), *ROOT.glob("policies/robo_papers/*/page.md"))
    if file.parent != ARCHIVES or file.name == "README.md"
)
NAMES = [str(file.relative_to(ROOT)) for file in PAGES]


@pytest.mark.parametrize("page", NAMES)
def test_tables_are_those_of_their_archives(page):
    text = (ROOT / page).read_text()
    assert rendered(text, ARCHIVES) == text, "python docs/page_tables.py writes it"


@pytest.mark.parametrize("page", NAMES)
def test_a_table_without_an_archive_says_so(page):
    unmarked = [f"{page}:{table.line} {table.head}" for table in untraced((ROOT / page).read_text()) if not table.is_marked]
    assert not unmarked, "archive it, or write *Unarchived.* under it"


def test_every_archive_of_trainings_is_on_a_page():
    """Results of a study that trains by itself, and those of searches, may be told in words."""
    shown = {name for file in PAGES for _, name, *_ in MARKED.findall(file.read_text())}
    trainings = {file.stem for file in ARCHIVES.glob("*.json") if Archive.read(file).kind != "results"}
    assert trainings - shown == set()


def test_other_tables_are_found_and_changed_ones_are_written(tmp_path, capsys):
    page = tmp_path / "page.md"
    marked = "<!--archive:oni-->\n| old |\n|---|\n| 1 |\n<!--/archive-->\n"
    page.write_text(f"# A\n\n{marked}\n| a | b |\n|---|---|\n| x | 1 [0, 2] |\n\n| a | b |\n|---|---|\n| x | words |\n")
    assert main([str(page), "--check"]) == 1
    assert "differs" in (shown := capsys.readouterr().out) and f"UNMARKED {page}:9  | a | b |" in shown
    assert main([str(page)]) == 0 and "| DoorKey-8x8 | retrieval |" in page.read_text()
    page.write_text(page.read_text().replace("[0, 2] |\n", "[0, 2] |\n\n*Unarchived.*\n"))
    assert main([str(page), "--check"]) == 0
    assert "1 tables of results have no archive; 1 of them say so" in capsys.readouterr().out


def test_the_page_shows_what_the_comparison_of_rewards_wrote():
    written = (ARCHIVES / "text2reward.md").read_text()
    assert written[written.index("| reward") :].strip() in (DOCS / "rewards/text2reward.md").read_text()


def test_picking_has_the_success_of_its_runs():
    archive, page = archive_named("arm-pick", ARCHIVES), (DOCS / "learners/rlpd.md").read_text()
    for method in ("arm-pick-rlpd", "arm-pick-sac", "arm-pick-rlpd-alone", "arm-pick-bc"):
        assert f"| {', '.join(f'{rate:.0%}' for rate in seed_values(archive, method, '', 'success'))} |" in page


@pytest.mark.parametrize("study", ["offline", "labels"])
def test_every_score_is_the_mean_of_its_seeds(study):
    table = archive_named(study, ARCHIVES).table
    cells = [cell for row in table["datasets"].values() for cell in row["methods"].values()]
    assert cells and {method for row in table["datasets"].values() for method in row["methods"]} <= {*read_plan(study).methods}
    for cell in cells:
        assert len(cell["seeds"]) == len(cell["scores"])
        assert abs(cell["score"] - sum(cell["scores"]) / len(cell["scores"])) < 0.02
