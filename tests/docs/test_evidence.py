"""Levels of evidence are those that archives and tests allow, and no component of ours is without a statement."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from robo_app.experiments.levels import archive_named, computed_level, filled, holds
from robo_app.listings.levels import Row, by_level, weakest_of
from robo_app.recipes.files import heading, recipe_files
from robo_cli.main import dispatch
from robo_papers.group_ppo.learner import KINDS
from robo_rl.entry_points import known, package_of
from robo_rl.errors import InvalidSetting, RunNotFound
from robo_rl.evidence import LEVELS, NONE, Evidence, Order, evidence_of, statements
from robo_rl.papers import papers

ROOT = Path(__file__).parents[2]
ARCHIVES = ROOT / "docs" / "benchmarks"
OURS = ("robo-rl", "robo-rl-papers")
STATED = [f"{group}.{name}" for group, name in statements()]
NUMBER = re.compile(r"(?<![\w-])\d")


def named(place: str) -> Evidence:
    group, _, name = place.partition(".")
    return evidence_of(group, name)


@pytest.mark.parametrize("group", ["learners", "rewards", "wrappers", "task_samplers"])
def test_every_component_of_ours_states_its_evidence(group: str) -> None:
    lacking = [name for name, point in known(group).items() if package_of(point) in OURS and evidence_of(group, name) is NONE]
    assert not lacking, "[evidence.GROUP.NAME] in paper.toml, or [GROUP.NAME] in robo_rl/evidence.toml"


def test_every_kind_of_advantage_states_its_evidence() -> None:
    assert {name for group, name in statements() if group == "advantages"} == {*KINDS}


def test_evidence_is_of_something_that_there_is() -> None:
    places = {(group, name) for group in ("learners", "rewards", "wrappers", "task_samplers") for name in known(group)}
    places |= {("environments", "world")} | {("papers", name) for name in papers()} | {("advantages", name) for name in KINDS}
    strangers = [place for place in statements() if place not in places]
    assert strangers == []


@pytest.mark.parametrize("place", STATED)
def test_no_level_is_above_that_of_archives_and_tests(place: str) -> None:
    evidence = named(place)
    assert evidence.rank >= LEVELS.index(computed_level(evidence, ARCHIVES))


@pytest.mark.parametrize("place", STATED)
def test_figures_are_those_of_the_archive(place: str) -> None:
    evidence = named(place)
    assert filled(evidence, ARCHIVES) == evidence.sentence, "robo-rl evidence --fill writes it"
    words = re.sub(r"\{[^{}]*\}", "", evidence.template) if evidence.template else evidence.sentence
    assert not NUMBER.search(words), "a figure comes from an archive, by the template"


@pytest.mark.parametrize("place", [place for place in STATED if named(place).tests])
def test_named_tests_are_there(place: str) -> None:
    for test in named(place).tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / file).read_text(), test
        assert (ROOT / file).is_file(), test


@pytest.mark.parametrize("page", [(evidence.page) for evidence in statements().values() if evidence.page])
def test_pages_of_evidence_are_there(page: str) -> None:
    assert (ROOT / page).is_file()


def test_levels_follow_the_orders() -> None:
    won, even = Order("iql", "bc", "reach-play"), Order("iql-noisy", "iql", "reach-play", share=0.8)
    shuffled = Order("iql", "iql-shuffled", "reach-play")
    proven = Evidence("proven", study="labels", baseline=won, control=shuffled)
    assert computed_level(proven, ARCHIVES) == "proven"
    assert computed_level(replace(proven, control=None), ARCHIVES) == "validated"
    assert computed_level(replace(proven, control=won), ARCHIVES) == "validated", "the baseline is no control"
    assert computed_level(replace(proven, baseline=even), ARCHIVES) == "validated", "a tie"
    lost = Order("iql-shuffled", "iql", "reach-play")
    assert computed_level(replace(proven, baseline=lost), ARCHIVES) == "experimental"
    assert computed_level(replace(proven, baseline=lost, tests=("a",)), ARCHIVES) == "validated"
    assert holds(archive_named("offline", ARCHIVES), Order("iql-online", "bc", "pick-mixed")) == "few seeds"
    with pytest.raises(InvalidSetting, match=r"lacks a figure(.|\n)*return of nobody on reach-play"):
        filled(Evidence(template="{return:nobody@reach-play}", study="labels"), ARCHIVES)
    with pytest.raises(RunNotFound, match="no such archive"):
        computed_level(replace(proven, study="none"), ARCHIVES)


@pytest.mark.slow
def test_orders_of_runs_are_computed_from_their_episodes() -> None:
    archive = archive_named("arm-pick", ARCHIVES)
    assert holds(archive, Order("arm-pick-rlpd", "arm-pick-bc", by="success")) == "yes"
    assert holds(archive, Order("arm-pick-bc", "arm-pick-rlpd", by="success")) == "no"


def test_lists_begin_with_what_is_proven() -> None:
    rows = [Row("b", NONE, "Second."), Row("a", Evidence("proven", "Shown."), "First.", ("first: it",))]
    lines = [" ".join(line.split()) for line in by_level(rows)]
    second = ["experimental (1)", "b Second.", "No evidence stated."]
    assert lines == ["proven (1)", "a First.", "Shown.", "first: it", "", *second]


def test_a_recipe_is_as_proven_as_its_weakest_part() -> None:
    assert weakest_of("iql", "mpo") is evidence_of("rewards", "mpo")
    assert weakest_of("iql", "") is evidence_of("learners", "iql")
    assert weakest_of("lab-unknown", "") is NONE
    found = {name: heading(file) for name, file in recipe_files().items()}
    assert found["arm-reach-vlm"].algorithm == "sac" and found["arm-reach-vlm"].reward == "embedded-progress"
    assert all(each.algorithm in known("learners") for each in found.values())
    assert all(each.reward in {"", *known("rewards"), "rewards/drive-clg.yaml"} for each in found.values())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["learners"], "proven (6)"),
        (["learners", "oer"], "experimental: Below plain replay"),
        (["recipes"], "proven ("),
        (["reward", "list"], "proven ("),
        (["papers"], "validated ("),
        (["papers", "oer"], "experimental: Below plain replay"),
        (["evidence", "--archives", str(ARCHIVES), "--check"], "proven: "),
    ],
)
def test_commands_show_levels(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(words) == 0
    assert expected in capsys.readouterr().out


GUIDES = ["docs/training/offline.md", "docs/training/imitation.md", "docs/index.md"]


@pytest.mark.parametrize("page", GUIDES)
def test_guides_recommend_only_what_is_proven(page: str) -> None:
    """Above the line of a guide's choice there are proven methods alone."""
    text = (ROOT / page).read_text()
    start = text.index("0024-levels-of-evidence")
    above = text[start : text.index("\n---\n", start)]
    learners = {name for name in re.findall(r"`([\w-]+)`", above) if name in known("learners")}
    assert learners and {evidence_of("learners", name).level for name in learners} == {"proven"}
