"""Free settings on the command line: one spelling, and errors that name it for every other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robo_app.arguments.free_settings import Group, gather, groups_of, option_words
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RoboRLError

ARGUMENTS = Group("environment.arguments", "--arguments")
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
        ("--arguments a=1", r"now spelled --environment.arguments.KEY(.|\n)*do: +--environment.arguments.a 1"),
        ("--arguments", "now spelled"),
        ("--into a=0.5 b=0.5", "--into.a 0.5 --into.b 0.5"),
    ],
)
def test_other_spellings_are_errors(words: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        gathered(*words.split())


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "red cube", "3", "a: b", "[", "", ["front"], {"a": {"b": 1}}])
def test_settings_survive_the_command_line(value: object) -> None:
    assert gathered(*option_words("environment.arguments", {"name": value})) == {"--environment.arguments.KEY": {"name": value}}


OLD = {
    "record robo/ArmReach-v0 --out d --arguments a=1": "--environment.arguments.a 1",
    "evaluate latest --arguments traffic=2": "--environment.arguments.traffic 2",
    "label d --name n --reward constant --settings value=1": "--reward.settings.value 1",
    "audit constant --dataset d --out o --wrong-settings goal=x": "--wrong.settings.goal x",
    "prefer d --name n --settings mistakes=0.2": "--rater.settings.mistakes 0.2",
    "reward search r --out o --settings steps=4000": "--recipe.steps 4000",
    "reward search r --out o --rater-settings mistakes=0.2": "--rater.settings.mistakes 0.2",
    "reward write r --out o --llm-settings model=m": "--llm.settings.model m",
    "reward compare r --out o --programs mine=m.py": "--programs.mine m.py",
    "robot serve --options speed=2": "--driver.settings.speed 2",
    "robot serve --cameras wrist=0": "--cameras.wrist 0",
    "console --twin --options speed=2": "--twin.settings.speed 2",
    "data split d --into a=0.5 b=0.5": "--into.a 0.5 --into.b 0.5",
    "train arm-reach-sac --environment.arguments max_steps=9": "--environment.arguments.max_steps 9",
    "evaluate latest --films 2": "--videos 2",
    "train arm-reach-sac --evaluation.films 2": "--evaluation.videos 2",
    "play latest --film f.mp4": "--video f.mp4",
    "refine latest --robot u --demos d": "--dataset d",
    "record robo/ArmReach-v0 --out d --workers 2": "--jobs 2",
    "label d --name n --reward constant --workers=2": "--jobs 2",
}


@pytest.mark.parametrize("line", [*OLD])
def test_options_of_before_name_their_successors(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((RoboRLError, SystemExit)) as stopped:
        dispatch(line.split())
    shown = capsys.readouterr().err + str(stopped.value)
    assert OLD[line] in shown and "got:" in shown and "allowed:" in shown


def test_help_shows_the_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dispatch(["record", "--help"])
    assert "--environment.arguments.KEY VALUE" in capsys.readouterr().out


def test_groups_of_finds_nested_options() -> None:
    from robo_app.rewards.search import SearchReward

    assert {group.name for group in groups_of(SearchReward)} == {"recipe", "rater.settings", "llm.settings"}


def test_no_docs_use_options_of_before() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "policies" / "robo_papers").rglob("*.md")]
    old = (
        "--arguments ",
        "--llm-settings",
        "--rater-settings",
        "--wrong-settings",
        "--films ",
        "--film ",
        "--demos ",
        "--workers ",
    )
    assert not [(page.name, word) for page in pages for word in old if word in page.read_text()]
