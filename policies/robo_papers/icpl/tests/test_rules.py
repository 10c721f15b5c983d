"""Rules that fill the weights of a program read their own programs; others are refused in one error."""

from pathlib import Path

import numpy as np
import pytest

from robo_cli.main import dispatch
from robo_papers.icpl.rule_writer import ProgramRule, read_rule, rule_files
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.programs.program import RewardProgram


@pytest.mark.parametrize("name", rule_files())
def test_shipped_rules_read_their_own_programs(name):
    rule = read_rule(name)
    weights = {weight: round(float(np.mean(limits)), 3) for weight, limits in rule.weights.items()}
    source = rule.filled(weights)
    assert rule.read(source) == weights and "by rule" in rule.about
    RewardProgram.parse(source)


def test_a_rule_that_does_not_fit_its_program_is_refused():
    with pytest.raises(InvalidSetting, match="does not fit its program at the weight 'a'"):
        ProgramRule("", "", "def reward(batch):\n    b = {b}", {"a": (0.0, 1.0)})
    with pytest.raises(UnknownName, match="Unknown rule 'raech'") as told:
        read_rule("raech")
    assert "reach" in str(told.value)


def test_a_deep_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text("[" * 5_000)
    with pytest.raises(InvalidSetting, match="deep"):
        read_rule(str(tmp_path / "deep.yaml"))


def test_an_unknown_rule_is_refused_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="Unknown rule 'raech'"):
        dispatch(["reward", "search", "arm-reach-short", "--llm", "rule:raech", "--out", "search"])
    assert not list(tmp_path.glob("*"))
