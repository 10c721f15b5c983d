"""Learners are composed: a variation is an object that one is given, never a subclass of it; settings are shared in groups."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import robo_policies.learners
from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SAC
from robo_rl.entry_points import known


def subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def inheriting(learners: Iterator[type]) -> list[str]:
    """Returns the learners whose class has a base that is a learner, too, and not merely an abstract one."""
    found = []
    for each in learners:
        concrete = [base for base in each.__mro__[1:] if issubclass(base, Learned) and not inspect.isabstract(base)]
        found += [f"{each.__name__}({base.__name__})" for base in concrete if base is not Learned]
    return found


CONTROLS = {"RewardAlone"}
"""Learners without a part, which studies of papers compare with."""


def own_learners() -> list[type]:
    for module in pkgutil.iter_modules(robo_policies.learners.__path__, "robo_policies.learners."):
        import_module(module.name)
    for point in known("learners").values():  # those of papers
        point.load()
    found = [each for each in subclasses(Learned) if each.__module__.startswith(("robo_policies.", "robo_papers."))]
    return [each for each in found if each.__name__ not in CONTROLS]


def test_no_learner_inherits_from_a_concrete_one():
    learners = own_learners()
    assert SAC in learners and len(learners) > 20
    assert inheriting(iter(learners)) == []


def test_a_learner_that_inherits_is_found():
    class Variation(SAC):
        pass

    assert inheriting(iter([Variation])) == ["Variation(SAC)"]


def test_no_settings_inherit_from_those_of_another_learner():
    """Of the learners from steps and recorded data; constrained PPO extends the settings of PPO."""
    found = {name: each.load() for name, each in known("learners").items()}
    own = {
        name: kind for name, kind in found.items() if kind.__module__.startswith(("robo_policies.learners.", "robo_papers."))
    }
    names = {kind: name for name, kind in own.items() if "ppo" not in name}
    inherited = {name: [names[base] for base in kind.__mro__[1:] if base in names] for kind, name in names.items()}
    assert len(inherited) > 30 and {name: bases for name, bases in inherited.items() if bases} == {}
