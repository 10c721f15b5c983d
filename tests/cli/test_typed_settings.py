"""Free settings on the command line: one spelling, and errors that name it for every other."""

from __future__ import annotations

import json

import pytest

from robo_app.arguments.free_settings import Group, gather, groups_of, option_words
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting

ARGUMENTS = Group("environment.arguments")
PARTS = Group("into", has_names=True)


def gathered(*words: str) -> dict[str, object]:
    found = gather(words, [ARGUMENTS, PARTS])
    return {option: json.loads(value) for option, value in zip(found[::2], found[1::2], strict=True)}


def test_settings_become_one_mapping_per_group() -> None:
    words = ["--environment.arguments.action-repeat", "3", "--into.my-part", "0.9", "--environment.arguments.cameras=[front]"]
    assert gathered(*words) == {
        "--environment.arguments.KEY": {"action_repeat": 3, "cameras": ["front"]},
        "--into.KEY": {"my-part": 0.9},
    }
    assert gathered("--environment.arguments", "{a: 1, b: {c: null}}", "--environment.arguments.a", "None") == {
        "--environment.arguments.KEY": {"a": None, "b": {"c": None}}
    }


def test_a_setting_takes_one_value() -> None:
    words = ["--environment.arguments.action_repeat", "3", "robo/ArmPick-v0", "--out", "data"]
    assert gather(words, [ARGUMENTS])[:3] == ["robo/ArmPick-v0", "--out", "data"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--environment.arguments.cameras", "has no value"),
        ("--environment.arguments.cameras [", "no readable value"),
        ("--environment.arguments cameras", "takes a mapping"),
        ("--environment.arguments a=1 b=2", "takes a key(.|\n)*--environment.arguments.a 1 --environment.arguments.b 2"),
        ("--into a=0.5 b=0.5", "--into.a 0.5 --into.b 0.5"),
    ],
)
def test_other_spellings_are_errors(words: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        gathered(*words.split())


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "red cube", "3", "a: b", "[", "", ["front"], {"a": {"b": 1}}])
def test_settings_survive_the_command_line(value: object) -> None:
    assert gathered(*option_words("environment.arguments", {"name": value})) == {"--environment.arguments.KEY": {"name": value}}


PAIRS = {
    "reward compare r --out o --programs mine=m.py": "--programs.mine m.py",
    "robot serve --cameras wrist=0": "--cameras.wrist 0",
    "data split d --into a=0.5 b=0.5": "--into.a 0.5 --into.b 0.5",
    "train arm-reach-sac --environment.arguments max_steps=9": "--environment.arguments.max_steps 9",
}


@pytest.mark.parametrize("line", [*PAIRS])
def test_names_with_values_are_told_the_spelling(line: str) -> None:
    with pytest.raises(InvalidSetting) as stopped:
        dispatch(line.split())
    assert PAIRS[line] in str(stopped.value) and "got:" in str(stopped.value) and "allowed:" in str(stopped.value)


def test_help_shows_the_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dispatch(["record", "--help"])
    assert "--environment.arguments.KEY VALUE" in capsys.readouterr().out


def test_groups_of_finds_nested_options() -> None:
    from robo_papers.icpl.search import SearchReward

    assert {group.name for group in groups_of(SearchReward)} == {"recipe", "rater.settings", "llm.settings"}
