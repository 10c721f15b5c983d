"""The objective of an environment's arguments, in the place of the sum of rewards.

An objective wraps an environment. It pays its own rewards, whose sum over an episode is the objective, and lets the policy
observe the number that it must remember, so that any learner can serve it (docs/objectives.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium

from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting
from robo_rl.settings import settings_as

KEYS = {"name", "settings"}


class Objective(Protocol):
    """Settings of an objective (entry point group `robo_rl.objectives`)."""

    def applied(self, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Return the environment with this objective; raises InvalidSetting, UnknownName if it does not fit."""


def with_objective(environment: gymnasium.Env[Any, Any], given: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment with an objective {name: NAME, settings: {...}}; raises InvalidSetting, UnknownName."""
    if not isinstance(given, Mapping) or "name" not in given or not set(given) <= KEYS:
        raise InvalidSetting("An objective is not complete.", got=given, allowed="{name: NAME, settings: {...}}")
    name = str(given["name"])
    objective: Objective = settings_as(load("objectives", name), given.get("settings") or {}, source=f"the objective {name}")
    return objective.applied(environment)
