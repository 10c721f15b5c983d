"""The tables of studies and races on the pages are the ones that these wrote."""

from pathlib import Path

import pytest

from robo_app.experiments.archive import Archive
from robo_app.experiments.plan import read_plan
from robo_app.experiments.race_table import race_page
from robo_app.experiments.tables import study_page

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"offline": "training/offline.md", "labels": "rewards/rewards.md"}
ONLINE = {
    "pictures": "rewards/online-rewards.md",
    "driving-large-batch": "driving/carla.md",
}
RACES = {"hil": "people/human-in-the-loop.md"}


def facts_of(study: str):
    return Archive.read(DOCS / "benchmarks" / f"{study}.json").table


@pytest.mark.parametrize("study", PAGES)
def test_the_page_shows_the_table_of_the_study(study):
    facts = facts_of(study)
    measured = {method for row in facts["datasets"].values() for method in row["methods"]}
    assert measured <= {*read_plan(study).methods}, "others may wait to be run"
    assert study_page(facts).strip() in (DOCS / PAGES[study]).read_text()


@pytest.mark.parametrize("study", ONLINE)
def test_the_page_shows_what_a_study_in_environments_found(study):
    assert study_page(facts_of(study)).strip() in (DOCS / ONLINE[study]).read_text()


@pytest.mark.parametrize("race", RACES)
def test_the_page_shows_the_table_of_the_race(race):
    assert race_page(facts_of(race)).strip() in (DOCS / RACES[race]).read_text()


def test_the_page_shows_what_the_comparison_of_rewards_wrote():
    assert (DOCS / "benchmarks" / "text2reward.md").read_text().strip() in (DOCS / "rewards/text2reward.md").read_text()


@pytest.mark.parametrize("study", PAGES)
def test_every_score_is_the_mean_of_its_seeds(study):
    cells = [cell for row in facts_of(study)["datasets"].values() for cell in row["methods"].values()]
    assert cells
    for cell in cells:
        assert len(cell["seeds"]) == len(cell["scores"])
        assert abs(cell["score"] - sum(cell["scores"]) / len(cell["scores"])) < 0.02
