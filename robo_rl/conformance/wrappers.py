"""Conformance suite of wrappers of environments, built in or third party.

    from robo_rl.conformance.wrappers import check_wrapper
    check_wrapper(MyWrapper(strength=2.0), lambda: make_environment("robo/ArmReach-v0"))

A broken rule raises ConformanceFailure, which names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import gymnasium

from robo_rl.conformance.environments import (
    EnvironmentCheck,
    actions_at_the_limits_are_accepted,
    episode_replays,
    observations_match_spec,
    reset_depends_on_seed_alone,
    rewards_are_finite_numbers,
    spaces_derive_from_spec,
)
from robo_rl.conformance.rules import Rule
from robo_rl.environments.wrapping import EnvironmentWrapper, Part
from robo_rl.spec.environment import EnvironmentSpec, specification

KEPT: tuple[EnvironmentCheck, ...] = (
    spaces_derive_from_spec,
    observations_match_spec,
    reset_depends_on_seed_alone,
    episode_replays,
    rewards_are_finite_numbers,
    actions_at_the_limits_are_accepted,
)
"""Rules of environments that a wrapped environment must keep."""
INTERFACE: tuple[Part, ...] = ("observation", "action")


def check_wrapper(wrapper: EnvironmentWrapper, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
    """Check a wrapper around an environment that `make` returns; raises ConformanceFailure at the first broken rule."""
    settings_are_a_frozen_dataclass(wrapper)
    spec_differs_where_it_says(wrapper, make)
    for check in KEPT:
        check(lambda: wrapper.wrap(make()))


def settings_are_a_frozen_dataclass(wrapper: EnvironmentWrapper) -> None:
    """Require that the wrapper is a frozen dataclass, and that its declared attributes are consistent."""
    kind = type(wrapper)
    rule = Rule(kind.__name__, "settings are a frozen dataclass")
    parameters: Any = getattr(kind, "__dataclass_params__", None)
    rule(is_dataclass(kind) and parameters.frozen, "it is no frozen dataclass", got=kind)
    rule({*kind.changes} <= {*get_args(Part)}, "changes are parts of a spec", got=kind.changes, allowed=get_args(Part))
    seen = {*INTERFACE} & {*kind.changes}
    rule(kind.in_evaluations or not seen, "policies are evaluated without it, and would see something else", got=seen)
    is_told = kind.wrap_vector is not EnvironmentWrapper.wrap_vector
    rule(kind.is_batched == is_told, "is_batched goes with wrap_vector", got=(kind.is_batched, is_told))


def spec_differs_where_it_says(wrapper: EnvironmentWrapper, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
    """Require that the wrapper changes only the parts of the spec that it declares in `changes`."""
    with contextlib.closing(make()) as bare:
        before = specification(bare)
    with contextlib.closing(wrapper.wrap(make())) as around:
        after = specification(around)
    different = [each.name for each in fields(EnvironmentSpec) if getattr(before, each.name) != getattr(after, each.name)]
    silent = [name for name in different if name not in wrapper.changes]
    rule = Rule(type(wrapper).__name__, "the spec differs where it says")
    rule(not silent, "parts of the spec differ that it does not name", got=silent, allowed=wrapper.changes)
