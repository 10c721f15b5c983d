"""What a run has asked a language model, and the packs that come along, from the command line."""

from pathlib import Path

import pytest

from robo_cli.main import dispatch
from robo_rl.errors import JudgeError, UnknownName
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.chat.question import prompt


def test_the_calls_of_a_run_are_told(capsys):
    with language_model("pack:point-example", log=Path("run/calls.jsonl")) as model:
        model.sample(prompt("Write " + "very " * 300 + "well.", purpose="write", system="You write."), 2)
    with Path("run/calls.jsonl").open("a") as log:
        log.write('{"torn')
    dispatch(["reward", "calls", "run", "--show", "1"])
    told = capsys.readouterr().out
    assert "write                      1       2     0" in told and "1 ok, 1 refused" in told
    assert "answered by 'made by hand'" in told and "the last line is torn (6 bytes) and left out" in told
    assert "=== write, prompt 0, sample 1: refused" in told and "sample 0" not in told
    assert "characters more)" in told and "--- made by hand\nI'm sorry" in told


def test_no_log_is_one_error():
    with pytest.raises(JudgeError, match="The log none cannot be read"):
        dispatch(["reward", "calls", "none"])


def test_packs_are_listed_and_one_is_shown(capsys):
    dispatch(["reward", "packs"])
    assert "point-example                made by hand; example on robo/ArmReach-v0" in capsys.readouterr().out
    dispatch(["reward", "packs", "point-example"])
    told = capsys.readouterr().out
    assert told.startswith("made by hand, not by a model; the authors") and "2 prompts or rules with 2, 1 replies" in told
    with pytest.raises(UnknownName, match="point-example"):
        dispatch(["reward", "packs", "point"])
