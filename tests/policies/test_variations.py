"""Variations of on-policy learners are objects: no learner inherits from another one, and no settings from another method's."""

from __future__ import annotations

import inspect

import pytest

from robo_policies.learners import barfi, cpo, episodic, explors, group_ppo, gtr, ppo, ppo_lagrangian, ppo_saute, srpo
from robo_rl.entry_points import known, load

MODULES = (barfi, cpo, episodic, explors, group_ppo, gtr, ppo, ppo_lagrangian, ppo_saute, srpo)
NAMES = ("barfi", "cpo", "explors", "group-ppo", "gtr", "ppo", "ppo-lagrangian", "ppo-saute", "srpo")


def learns(kind: type) -> bool:
    return callable(getattr(kind, "update", None)) or callable(getattr(kind, "learn", None))


def concrete_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__[1:] if learns(base) and not inspect.isabstract(base)]


def learners() -> set[type]:
    classes = {each for module in MODULES for each in vars(module).values() if inspect.isclass(each)}
    return {each for each in classes if each.__module__.startswith("robo_policies.learners") and learns(each)}


def test_no_learner_inherits_from_another():
    found = learners()
    assert {ppo.PPO, episodic.ClippedLearner, barfi.BARFI, explors.ExploRS} <= found
    assert {each: bases for each in found if (bases := concrete_bases(each))} == {}


def test_a_learner_that_inherits_is_found():
    assert concrete_bases(type("Variation", (ppo.PPO,), {})) == [ppo.PPO]


@pytest.mark.parametrize("name", NAMES)
def test_no_settings_inherit_from_another_methods(name):
    others = {load("learners", each) for each in known("learners")} - {load("learners", name)}
    assert [base for base in load("learners", name).__mro__[1:] if base in others] == []
