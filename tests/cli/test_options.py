"""Options as they are typed: one style of errors, whole numbers such as 1e5, help that says what a flag does."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from robo_app.arguments.options import as_flags, whole_numbers
from robo_app.recipes.recipe import read_recipe
from robo_cli.main import dispatch
from robo_rl.entry_points import known
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.chat.models import chat_model

PICK = "train arm-pick-rlpd"
WRONG = {
    f"{PICK} --steps many": ["--steps cannot be read.", "got:     many", "allowed: --steps INT: Environment steps"],
    f"{PICK} --environment.arguments.action_repeat 3.5": ["action-repeat cannot be read.", "got:     3.5", "INT"],
    f"{PICK} --lr 1e-4": ["Unknown option '--lr'.", "got:     --lr 1e-4", "did you mean --learner.lr FLOAT"],
    "record robo/X --out a --episode 2": ["Unknown option '--episode'.", "did you mean --episodes INT: Number of"],
    "resume": ["robo-rl resume needs more.", "got:     nothing", "allowed: RUN: Path or name of a run folder"],
    "record robo/X": ["robo-rl record needs more.", "got:     robo/X", "allowed: --out PATH: Folder of the dataset."],
    "envs a b": ["'b' is one word too many."],
    "demo hil --task x": ["invalid choice 'x' for argument '--task'", "pick", "peg"],
    "robot serve --driver": ["Missing value for argument '--driver'"],
}


@pytest.mark.parametrize("line", [*WRONG])
def test_wrong_options_are_errors_like_all_others(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        dispatch(line.split())
    shown = capsys.readouterr().err
    assert stopped.value.code == 2 and shown.startswith("error: ") and "\n  do:      " in shown
    assert not set("╭│╰─") & set(shown), "no box of the option parser"
    assert "--help` lists all options" in shown and "{None}" not in shown
    for words in WRONG[line]:
        assert words in shown


def test_whole_numbers_may_be_written_with_an_exponent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps", "1e5", "--learner.replay.capacity=2.5e4", "--learner.lr", "1e-4", "--dry-run"]
    assert dispatch(["train", "halfcheetah-sac", *words]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["steps"], shown["learner"]["replay"]["capacity"], shown["learner"]["lr"]) == (100_000, 25_000, 1e-4)
    path = tmp_path / "mine.yaml"
    path.write_text("environment: {name: robo/ArmReach-v0}\nalgorithm: sac\nsteps: 1e5\n")
    assert read_recipe(str(path)).steps == 100_000
    path.write_text("environment: {name: robo/ArmReach-v0}\nalgorithm: sac\nsteps: 15e-1\n")
    with pytest.raises(InvalidSetting, match="steps has the wrong type"):
        read_recipe(str(path))


@pytest.mark.parametrize(
    "words",
    [["--learner.network.hidden", "[32, 16]"], ["--learner.network.hidden=[32,16]"], ["--learner.network.hidden", "32", "16"]],
)
def test_a_list_may_be_written_as_in_yaml(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["train", "halfcheetah-sac", *words, "--steps", "50", "--dry-run"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["learner"]["network"]["hidden"] == [32, 16] and shown["steps"] == 50


def test_a_model_whose_name_is_a_number() -> None:
    with pytest.raises(InvalidSetting, match=r"model has the wrong type(.|\n)*looks like a number is written in quotes.*'429'"):
        chat_model("endpoint", {"model": 429})
    assert chat_model("endpoint", {"model": "429"}).identity[0] == "endpoint 429"


def test_names_that_look_like_numbers_stay_names() -> None:
    words = ["1e5", "--name", "1e5", "--out=2e3", "--steps", "1.5e0"]
    assert whole_numbers(words) == words


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["--version"]) == 0
    assert capsys.readouterr().out == f"robo-rl {version('robo-rl')}\n"


@pytest.mark.parametrize("line", ["refine", "console", "data view", "demo hil"])
def test_a_flag_is_described_as_what_it_does(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dispatch([*line.split(), "--help"])
    page = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--no-browser Leave the browser alone;" in page and "(default: True)" not in page and "{None}" not in page


def test_a_recipe_file_that_is_not_there_is_said_so() -> None:
    with pytest.raises(InvalidSetting, match=r"There is no file bad/zzz.yaml(.|\n)*no such file in"):
        dispatch(["train", "bad/zzz.yaml"])


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert dispatch(["envs", *words]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if "/" in line and line[0] != "#" and "NAME" not in line]


def test_environments_are_found_by_a_part_of_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "robo/ArmPick-v0" in listed(capsys, "arm") and "robo/ArmPick-v0" in listed(capsys, "PICK")
    assert {name.partition("/")[0] for name in listed(capsys, "robo")} == {"robo"}
    assert listed(capsys, "robo/ArmP") == ["robo/ArmPush-v0", "robo/ArmPick-v0", "robo/ArmPegInsert-v0"]
    assert "robot/Fake-v0" in listed(capsys, "robot"), "a test double is listed where its family is named"


def test_families_are_listed_with_a_sentence_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["envs"]) == 0
    page = capsys.readouterr().out
    rows = {line[:20].strip(): line[20:].strip() for line in page.partition("\n\n")[0].splitlines()}
    assert rows.keys() == known("environments").keys() and rows["robo"] == "Our own seven-axis arm."
    assert all(text.endswith(".") for text in rows.values())


def test_environments_stand_under_their_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["envs", "arm"]) == 0
    page = capsys.readouterr().out
    assert "\n# robo\nrobo/ArmReach-v0\n" in page and "robot/Fake-v0" not in page
    assert page.count("\n# ") == len(
        {line.partition("/")[0] for line in page.splitlines() if "/" in line and line[0] != "#"} - {""}
    )


@pytest.mark.slow
def test_switches_take_true_and_false(capsys: pytest.CaptureFixture[str]) -> None:
    """As settings of experiments write them."""
    assert as_flags(["--a.b_c", "false", "--d", "True", "--e=x", "true", "f"]) == ["--a.no-b_c", "--d", "--e=x", "true", "f"]
    shown = ["train", "point-machine", "--dry-run", "--record-episodes"]
    for word in ("true", "false"):
        assert dispatch([*shown, word]) == 0
        assert f"record_episodes: {word}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        dispatch([*shown, "maybe"])
    assert "'maybe' is one word too many" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        dispatch([*shown, "true", "--learner.lr", "nonsense"])
    error = capsys.readouterr().err
    assert "nonsense" in error and "too many" not in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--learner.hidden", "8"], "write --learner.network.hidden"),
        (["--learner.replay-capacity", "8"], "write --learner.replay.capacity"),
        (["--learner.no-layer-norm"], "write --learner.network.layer-norm"),
        (["--learner.network", "my:Encoder"], "--learner.network.encoder"),
    ],
)
def test_a_setting_without_its_group_is_told_where_it_is(words: list[str], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        dispatch(["train", "arm-pick-rlpd", *words])
