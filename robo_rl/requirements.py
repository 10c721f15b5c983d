"""Checks that components share: ranges of settings, kinds of actions, finite numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

import numpy as np

from robo_rl.errors import InvalidSetting, NonFiniteUpdate, RunError, require_allowed
from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec
from robo_rl.spec.observation import Role
from robo_rl.types import Array

RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lr": (lambda rate: rate > 0, "above 0"),
    "batch_size": (lambda size: size >= 1, "1 or more"),
    "tau": (lambda share: 0 < share <= 1, "above 0, at most 1"),
    "critics": (lambda count: count >= 1, "1 or more"),
    "initial_temperature": (lambda weight: weight > 0, "above 0"),
}
"""Name of a setting -> (check, allowed values in words), for every learner with this setting."""


def require_ranges(config: Any) -> None:
    """Raise InvalidSetting if a number in a learner's settings, or in their `sampling`, is outside its range in `RANGES`."""
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.name in RANGES}
    require_allowed(config, {name: (RANGES[name][0](value), RANGES[name][1]) for name, value in values.items()})
    _ = getattr(config, "sampling", None)  # checks itself when it is made


def require_groups(settings: Any) -> None:
    """Raise InvalidSetting if a field that holds a group of settings was given an object of another class than its default."""
    for field in fields(settings):
        value, kind = getattr(settings, field.name), type(field.default)
        if is_dataclass(field.default) and not isinstance(value, kind):
            name = type(settings).__name__
            raise InvalidSetting(
                f"The group {field.name!r} of {name} is of another kind.",
                got=repr(value),
                allowed=f"a {kind.__name__}, which has the defaults of this learner",
                fix=f"{name}({field.name}={kind.__name__}(...)), from {kind.__module__}",
            )


def require_continuous(spec: EnvironmentSpec, learner: str) -> None:
    """Raise InvalidSetting if the actions of the environment are discrete; `learner` is named in the message."""
    if spec.action.is_discrete:
        raise InvalidSetting(
            f"{learner} needs continuous actions, and those of {spec.name!r} are discrete.",
            got=f"{spec.action.size} choices: {', '.join(spec.action.names)}",
            allowed="an action in [-1, 1]^A",
            fix="use dqn or ppo, or bc with demonstrations",
        )


def require_choices(spec: EnvironmentSpec, learner: str) -> None:
    """Raise InvalidSetting if the actions of the environment are continuous; `learner` is named in the message."""
    if not spec.action.is_discrete:
        raise InvalidSetting(
            f"{learner} needs discrete actions, and those of {spec.name!r} are continuous.",
            got=f"{spec.action.size} numbers: {', '.join(spec.action.names)}",
            allowed="one of several choices",
            fix="use sac or ppo, or bc with demonstrations",
        )


def require_vectors(spec: EnvironmentSpec) -> ObservationSpec:
    """Return the vectors that a policy may read; raises InvalidSetting if there are none."""
    if vectors := spec.observation.vectors:
        return vectors
    raise InvalidSetting(
        f"This learner reads vectors, and {spec.name!r} has none that a policy may see.",
        got=list(spec.observation),
        allowed="proprioception, object or goal entries",
    )


def require_same_networks(got: str, allowed: str) -> None:
    """Raise RunError if a checkpoint holds networks of other kinds than the present ones.

    got, allowed: descriptions of the networks.
    """
    if got != allowed:
        what = "This checkpoint was made by a version of robo-rl with other networks: train again, or use that version."
        raise RunError(what, got=got, allowed=allowed)


def refuse_step(update: int, what: str, *, got: str, fix: str) -> NoReturn:
    """Raise NonFiniteUpdate, because the gradient of an update is not finite.

    Args:
        update: Number of the update.
        what: Name of the quantity that is not finite.
        got: Its value, for the message.
        fix: Remedy in words.
    """
    what = f"Update {update} was refused: the {what} is not finite; the parameters before it are kept."
    raise NonFiniteUpdate(what, got=got, allowed="finite numbers", fix=fix)


def require_role(spec: EnvironmentSpec, role: Role, setting: str) -> ObservationSpec:
    """Return the observation entries with a role that a setting needs; raises InvalidSetting if there are none."""
    if entries := spec.observation.subset(role):
        return entries
    raise InvalidSetting(
        f"{setting} is set, and {spec.name!r} has no {role} entry.",
        got=list(spec.observation),
        allowed=f"an entry of role {role}",
        fix=f"leave {setting} out, or look for an argument of the environment that adds one",
    )


def require_finite_data(arrays: Mapping[str, Array], update: int, of: str = "batch", *, columns: Sequence[str] = ()) -> None:
    """Raise NonFiniteUpdate if an array (B, ...) of a batch holds NaN or infinity; called before anything is changed.

    Args:
        arrays: Name -> array.
        update: Number of the update, for the message.
        of: Noun for the data, for the message.
        columns: Names of the columns of observations, for the message.
    """
    # a sum is not finite if an element is not, and costs a tenth of testing each; the slow test settles overflow
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(sum([float(np.add.reduce(value, axis=None)) for value in arrays.values()])):
            return
    for name, value in arrays.items():
        wrong = (~np.isfinite(value)).reshape(len(value), -1)
        if bad := int(wrong.any(1).sum()):
            is_named = "observations" in name and len(columns) == wrong.shape[1]
            where = [columns[place] for place in np.flatnonzero(wrong.any(0)).tolist()] if is_named else []
            raise NonFiniteUpdate(
                f"Update {update} was refused: {of} {name} are not finite; all parameters are kept.",
                got=f"{bad} of {len(value)} rows with NaN or infinity" + (f", in {', '.join(where[:5])}" * bool(where)),
                allowed="finite numbers",
                fix="look at the environment's reward and sensors, and at the recorded episodes if there are any",
            )
