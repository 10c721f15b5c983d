"""A paper is its folder: what it declares is found by name, and a folder that is wrong is named with its fault."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from robo_app.recipes.files import heading, recipe_files
from robo_app.recipes.recipe import read_recipe
from robo_cli.main import dispatch
from robo_rl.entry_points import known, load, package_of
from robo_rl.errors import BrokenPlugin, InvalidSetting, UnknownName
from robo_rl.papers import papers, read_paper

DECLARATION = """
title = "Half of SAC"
summary = "Learn half as fast."
[learners]
lab-half = "learner:HalfConfig"
lab-none = "learner:Nothing"
[rewards]
lab-zero = "reward:Zero"
"""
LEARNER = '''
"""Half: a learner for this test."""

from dataclasses import dataclass

from robo_policies.learners.sac import SACConfig


@dataclass(frozen=True)
class HalfConfig(SACConfig):
    """Settings."""
'''
REWARD = '''
"""A reward for this test."""


class Zero:
    """Nothing at each step."""
'''
RECIPE = """
summary: Half of it.
environment: {name: robo/ArmReach-v0}
algorithm: lab-half
needs:
  some.file: robo-rl make it
steps: 10
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution of one package with one paper, and return the folder of the paper."""
    folder = tmp_path / "lab_papers" / "half"
    (folder / "recipes").mkdir(parents=True)
    for file, text in {"paper.toml": DECLARATION, "learner.py": LEARNER, "reward.py": REWARD, "__init__.py": ""}.items():
        (folder / file).write_text(text.lstrip())
    (tmp_path / "lab_papers" / "__init__.py").write_text("1 / 0")
    (folder / "recipes" / "lab-half-reach.yaml").write_text(RECIPE)
    information = tmp_path / "lab_papers-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-papers\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text("[robo_rl.papers]\nlab = lab_papers\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.startswith("lab_papers")]:
        sys.modules.pop(name)
    return folder


def test_lists_have_what_a_paper_declares_and_import_none(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    under = "\n" + 25 * " "
    for words, line in {
        "learners": "\nlab-half                 Half: a learner for this test.\n",
        "reward list": "\nlab-zero                 Nothing at each step.\n",
        "recipes": f"\nlab-half-reach           Half of it.{under}No evidence stated.{under}first: robo-rl make it\n",
    }.items():
        assert dispatch(words.split()) == 0
        assert line in capsys.readouterr().out
    assert not [name for name in sys.modules if name.startswith("lab_papers")]
    assert package_of(known("learners")["lab-half"]) == "lab-papers"


def test_components_of_a_paper_are_loaded(lab: Path) -> None:
    (lab.parent / "__init__.py").write_text("")
    assert load("learners", "lab-half").__name__ == "HalfConfig"
    assert read_recipe("lab-half-reach").learner == load("learners", "lab-half")()
    with pytest.raises(BrokenPlugin, match="The plug-in 'lab-none' of the package lab-papers does not work"):
        load("learners", "lab-none")


@pytest.mark.slow
def test_a_heading_is_what_the_whole_recipe_says() -> None:
    for name, file in recipe_files().items():
        recipe, found = read_recipe(name), heading(file)
        assert (found.summary, found.needs) == (recipe.summary, recipe.needs), name
        assert (found.algorithm, found.reward) == (recipe.algorithm, recipe.reward.name), name


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("title = ", InvalidSetting, r"paper.toml cannot be read.(.|\n)*allowed: TOML"),
        ("title = 'a'", InvalidSetting, r"paper.toml lacks summary"),
        ("title = 'a'\nsummary = 1", InvalidSetting, r"summary is no text(.|\n)*got: +1"),
        ("title = 'a'\nsummary = 'b'\n[learner]", UnknownName, r"Unknown key in .*paper.toml: 'learner'(.|\n)*'learners'"),
        ("title = 'a'\nsummary = 'b'\nrewards = 3", InvalidSetting, r"rewards is no table(.|\n)*\[rewards\]"),
        ("title = 'a'\nsummary = 'b'\n[rewards]\nx = 'y'", InvalidSetting, r"rewards.x names no object(.|\n)*module:object"),
        ("title = 'a'\nsummary = 'b'\ntrials = 3", InvalidSetting, r"trials is no table of tables"),
    ],
)
def test_a_wrong_declaration_is_named(tmp_path: Path, text: str, error: type[Exception], words: str) -> None:
    (tmp_path / "paper.toml").write_text(text)
    with pytest.raises(error, match=words):
        read_paper(tmp_path, "lab.half", "lab")


def test_a_broken_paper_hides_no_other(lab: Path) -> None:
    other = lab.parent / "broken"
    other.mkdir()
    (other / "paper.toml").write_text("title = 'a'")
    with pytest.warns(UserWarning, match=r"A paper of lab-papers is left out: .*broken/paper.toml lacks summary"):
        found = papers()
    assert found["half"].title == "Half of SAC" and "broken" not in found
