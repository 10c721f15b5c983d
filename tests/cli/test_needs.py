"""Recipes that read what another command makes: said by `robo-rl recipes`, and by the error where it is not made yet."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from factories import rest_slow
from robo_app.recipes.files import recipe_files
from robo_app.recipes.recipe import read_recipe
from robo_app.recipes.required_files import require_needs
from robo_cli.main import dispatch
from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.rewards.fitted_folder import NEEDED, fitted

NEEDY = {name: needs for name in recipe_files() if (needs := read_recipe(name).needs)}
PATHS = re.compile(r"(?:rewards|data|models|runs)/[\w./-]+")


def test_recipes_name_the_command_that_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["recipes"]) == 0
    page = capsys.readouterr().out
    assert "first: robo-rl reward latent gymnasium/Reacher-v5 --llm pack:lare-reacher --out rewards/reacher.py" in page
    assert "first: robo-rl reward fit embedded --environment robo/ArmReach-v0 --out rewards/reach" in page


@pytest.mark.parametrize("name", [*recipe_files()])
def test_every_file_that_a_recipe_reads_has_a_command(name: str) -> None:
    reward = yaml.safe_dump(yaml.safe_load(recipe_files()[name].read_text()).get("reward", {}))
    needs = read_recipe(name).needs
    assert set(PATHS.findall(reward)) == set(needs)
    assert all(command.endswith(f"--out {path}") for path, command in needs.items())


@pytest.mark.parametrize("name", [*NEEDY])
@pytest.mark.parametrize("more", [[], ["--seeds", "0-1"]], ids=["one", "seeds"])
def test_the_error_is_the_command_that_makes_it(name: str, more: list[str]) -> None:
    path, command = next(iter(NEEDY[name].items()))
    with pytest.raises(InvalidSetting, match=f"reads {path}, which is not there yet") as told:
        dispatch(["train", name, *more])
    assert str(told.value).endswith(f"do:      {command}")
    assert not Path("runs").exists(), "a run that cannot start leaves no folder"


def test_another_path_on_the_command_line_needs_nothing(tmp_path: Path) -> None:
    recipe = read_recipe("reacher-lare")
    recipe.reward.settings["path"] = str(tmp_path / "mine.py")
    require_needs(recipe)


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_slow(NEEDED))
def test_the_hint_of_a_missing_fit_is_a_whole_command(kind: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointCorrupt) as told:
        fitted(tmp_path / "none", "reward" if kind == "preference" else kind, kind=kind)
    command = re.search(r"robo-rl (reward fit .*)$", str(told.value))
    assert command is not None
    words = [sys.executable, "-m", "robo_cli.main", *command[1].split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("error: "), "not a usage error: every option is there"
