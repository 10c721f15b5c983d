"""Variations of on-policy learners are objects: no learner inherits from another one, and no settings from another method's."""

from __future__ import annotations

import dataclasses
import inspect
import sys

import pytest

from robo_policies.learners import episodic, ppo
from robo_rl.entry_points import known, load

NAMES = ("barfi", "cpo", "explors", "group-ppo", "gtr", "ppo", "ppo-lagrangian", "ppo-saute", "srpo")
MODULES = {episodic, *(sys.modules[load("learners", name).__module__] for name in NAMES)}


def learns(kind: type) -> bool:
    return callable(getattr(kind, "update", None)) or callable(getattr(kind, "learn", None))


def concrete_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__[1:] if learns(base) and not inspect.isabstract(base)]


def learners() -> set[type]:
    classes = {each for module in MODULES for each in vars(module).values() if inspect.isclass(each)}
    return {each for each in classes if each.__module__.startswith(("robo_policies.learners", "robo_papers")) and learns(each)}


def test_no_learner_inherits_from_another():
    found = learners()
    assert {"PPO", "ClippedLearner", "BARFI", "ExploRS"} <= {each.__name__ for each in found}
    assert {each: bases for each in found if (bases := concrete_bases(each))} == {}


def test_a_learner_that_inherits_is_found():
    assert concrete_bases(type("Variation", (ppo.PPO,), {})) == [ppo.PPO]


@pytest.mark.parametrize("name", NAMES)
def test_no_settings_inherit_from_another_methods(name):
    others = {load("learners", each) for each in known("learners")} - {load("learners", name)}
    assert [base for base in load("learners", name).__mro__[1:] if base in others] == []


MOST_OWN = 20


@pytest.mark.parametrize("name", NAMES)
def test_a_method_has_few_settings_of_its_own(name):
    """The others are of groups (classes called ...Settings) that several methods share."""
    kind = load("learners", name)
    inherited = {item.name for base in kind.__mro__[1:] for item in getattr(base, "__dataclass_fields__", {}).values()}
    own = {item.name for item in dataclasses.fields(kind)} - inherited
    groups = [base for base in kind.__mro__[1:] if dataclasses.is_dataclass(base)]
    sizes = [len(set(vars(base).get("__annotations__", {})) & set(base.__dataclass_fields__)) for base in groups]
    assert len(own) <= MOST_OWN and all(size <= MOST_OWN for size in sizes)
    assert all(base.__name__.endswith("Settings") for base in groups)
