"""Help of a command with hundreds of options: short at first, then group by group; recipes that explain themselves."""

from __future__ import annotations

import re

import pytest

from robo_app.recipes.files import recipe_files
from robo_app.recipes.recipe import read_recipe
from robo_cli.main import dispatch
from robo_rl.errors import UnknownName


def shown(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        dispatch(["train", "arm-pick-rlpd", *words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_overview_has_the_common_options_and_names_each_group(capsys):
    page = shown(capsys, "--help")
    assert len(page.splitlines()) < 130
    assert "--steps INT" in page and "--learner.batch-size" not in page
    assert re.search(r"^  learner +\d\d options$", page, re.MULTILINE)
    assert "`robo-rl train arm-pick-rlpd --help GROUP`" in page
    examples = page[page.index("examples") : page.index("╭")].strip()
    assert "\n\n" not in examples


def test_a_group_is_shown_alone_and_all_groups_together(capsys):
    page = shown(capsys, "--help", "learner")
    assert "--learner.batch-size INT" in page and "--steps INT" not in page
    everything = shown(capsys, "-h", "all")
    assert "--learner.batch-size INT" in everything and "--steps INT" in everything


def test_an_unknown_group_is_told_the_known_ones():
    with pytest.raises(UnknownName, match=r"'lerner'(.|\n)*did you mean 'learner'"):
        dispatch(["train", "arm-pick-rlpd", "--help", "lerner"])


@pytest.mark.parametrize("name", sorted(recipe_files()))
def test_summary_of_a_recipe_stands_alone(name):
    summary = read_recipe(name).summary
    assert not re.match(r"The same|As [a-z]", summary), "sorting tears it away from the recipe that it refers to"
