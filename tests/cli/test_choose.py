"""robo-rl choose: every situation ends in one method that can learn there, and its commands."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from robo_app.listings.choice import QUESTIONS, Situation, choose
from robo_app.training.train_options import Train, parsed
from robo_cli.main import dispatch
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting
from robo_rl.evidence import Evidence
from robo_rl.protocols.contract import Feature
from robo_rl.training.compatibility import Capabilities

SITUATIONS = [Situation(*answers) for answers in itertools.product(*(answers for _, answers in QUESTIONS.values()))]
ROOT = Path(__file__).parents[2]


def able(learner: str, feature: Feature) -> bool:
    return Capabilities.of(load("learners", learner)()).cell(feature) != "no"


def test_a_method_is_of_the_kind_that_the_situation_asks_for():
    for here in SITUATIONS:
        learner = choose(here, "E").learner
        if here.data_alone == "yes":
            assert learner in ("bc", "iql"), here
        elif here.person == "yes" and here.limits == "no":
            assert able(learner, Feature.PERSON), here
        if here.reward == "none" and here.limits == "no":
            assert learner in ("bc", "hg-dagger"), here


@pytest.mark.slow
def test_every_command_can_be_parsed_and_every_page_exists():
    assert len({choose(here, "E").learner for here in SITUATIONS}) == 7
    for choice in {choose(here, "robo/ArmReach-v0") for here in SITUATIONS}:
        assert (ROOT / choice.page).is_file(), choice
        *_, last = choice.commands
        _, _, name, *words = last.split()
        assert parsed(Train, name, words).recipe.algorithm == choice.learner


def test_a_proven_method_goes_first_and_the_level_is_said(capsys, monkeypatch):
    known = {here: choose(here, "E") for here in SITUATIONS}
    assert {choice.learner for choice in known.values() if choice.evidence.rank == 0} == {
        "rlpd",
        "hil-serl",
        "hg-dagger",
        "iql",
    }
    here = next(here for here in SITUATIONS if known[here].learner == "rlpd" and here.reward == "dense")
    doubted = {"sac": Evidence("proven", "Here."), "rlpd": Evidence("experimental", "Doubtful.")}
    monkeypatch.setattr("robo_app.listings.choice.evidence_of", lambda group, name: doubted[name])
    assert choose(here, "E").learner == "sac"
    monkeypatch.undo()
    dispatch(["choose", "--reward", "sparse"])
    assert "\nproven: Picks a cube" in capsys.readouterr().out
    dispatch(["choose", "--limits", "yes"])
    assert "\nvalidated: " in (shown := capsys.readouterr().out) and "No method is proven for this situation." in shown


def test_answers_are_options_or_typed(capsys, monkeypatch):
    assert dispatch(["choose", "--reward", "sparse", "--environment", "mine:Env"]) == 0
    assert "rlpd\n" in (shown := capsys.readouterr().out) and "robo-rl train rlpd --environment mine:Env" in shown
    with pytest.raises(InvalidSetting, match="nobody can be asked here"):
        dispatch(["choose"])
    typed = iter(["?", "n", "d", "no", "n", "n", "y"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: next(typed))
    assert dispatch(["choose"]) == 0 and capsys.readouterr().out.startswith("ppo-lagrangian\n")
