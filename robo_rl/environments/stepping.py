"""Reset and step environments of any origin: every failure inside becomes one error that names its location.

Known keys of `info` are checked; a wrong value raises one error that names the key. Observations and infos are copied, because
many simulators write each step into the same buffer.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from robo_rl.errors import EnvironmentFailed, InvalidAction, InvalidObservation, RoboRLError, printable
from robo_rl.spec.environment import ActionSpec, Observation
from robo_rl.types import MEASURED_AT, MEASURES, METADATA, ActionSource, Array

ROUNDING = 1e-5
"""Largest amount by which an executed action may leave [-1, 1]: limits in float32 were scaled there and back."""
VERDICTS = ("guard", "shadow_guard")
"""Keys in `info` under which a guard (which limits a robot's motion) gives its reasons. The first is for a changed action, the
second for an action that was only judged."""
Step = tuple[Observation, float, bool, bool, Mapping[str, Any]]


def reset(environment: gymnasium.Env[Any, Any], name: str, **options: Any) -> tuple[Observation, Mapping[str, Any]]:
    """Reset an environment and return its first observation and info; raises EnvironmentFailed.

    Args:
        environment: The environment.
        name: Its name, for the message.
        options: Arguments of `environment.reset`.
    """
    try:
        found = environment.reset(**options)
    except RoboRLError:
        raise
    except Exception as error:
        raise _raised(name, "reset", error) from error
    if not isinstance(found, tuple) or len(found) != 2:
        raise EnvironmentFailed(
            f"{name} returned no reset.",
            got=type(found).__name__,
            allowed="(observation, info)",
            fix=f"look at reset() of {name}",
        )
    observation, info = found
    return _fresh(name, observation), checked_info(name, info)


def step(environment: gymnasium.Env[Any, Any], name: str, action: Any) -> Step:
    """Step an environment and return its five values; the reward is a float, which may be NaN. Raises EnvironmentFailed."""
    try:
        found = environment.step(action)
    except RoboRLError:
        raise
    except Exception as error:
        raise _raised(name, "step", error) from error
    if not isinstance(found, tuple) or len(found) != 5:
        raise EnvironmentFailed(
            f"{name} returned no step.",
            got=f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__,
            allowed="(observation, reward, terminated, truncated, info)",
            fix=f"look at step() of {name}",
        )
    observation, reward, terminated, truncated, info = found
    info = checked_info(name, info)
    return _fresh(name, observation), _number(name, reward), bool(terminated), bool(truncated), info


def require_finite(name: str, observation: Observation, where: str) -> None:
    """Raise InvalidObservation if an array of floats holds NaN or infinity.

    Args:
        name: Name of the environment, for the message.
        observation: Observation.
        where: Step of the episode, for the message.
    """
    for entry, value in observation.items():
        if value.dtype.kind == "f" and np.count_nonzero(np.isfinite(value)) < value.size:  # thrice as fast as all()
            wrong = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            raise InvalidObservation(
                f"{name} returned an observation {entry!r} that holds NaN or infinity.",
                got=f"{value[wrong]} at index {list(wrong)}, {where}",
                allowed="finite numbers",
                fix="look at the environment; nothing is replaced silently",
            )


def _fresh(name: str, observation: Any) -> dict[str, Any]:
    if not isinstance(observation, Mapping):
        raise EnvironmentFailed(
            f"{name} returned no observation.",
            got=type(observation).__name__,
            allowed="a dict of arrays by name, as its environment_spec says",
            fix=f"look at reset() and step() of {name}",
        )
    return {key: np.array(value) for key, value in observation.items()}


def _number(name: str, reward: Any) -> float:
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError):
        shape = getattr(reward, "shape", None)
        got = printable(repr(reward), 100) + (f", shape {shape}" if shape else "")
        raise EnvironmentFailed(
            f"{name} returned a reward that is no number.", got=got, allowed="one number", fix=f"look at the reward of {name}"
        ) from None


def _raised(name: str, what: str, error: Exception) -> EnvironmentFailed:
    place = traceback.extract_tb(error.__traceback__)[-1]
    fix = f"look at {printable(place.filename)}, line {place.lineno}, in {place.name}"
    if isinstance(error, TypeError) and "unexpected keyword argument" in str(error) and what == "reset":
        fix = f"write the reset of {name} as reset(self, *, seed=None, options=None)"  # the place is that of our call
    return EnvironmentFailed(
        f"{name} raised an error in {what}().",
        got=f"{type(error).__name__}: {printable(str(error))}",
        fix=fix,
    )


def checked_info(name: str, info: Any) -> dict[str, Any]:
    """Return a copy of `info` in which no known value is shared with the next step.

    Raises EnvironmentFailed if a known key has a wrong type or range. name: name of the environment.
    """
    if not isinstance(info, Mapping):
        raise EnvironmentFailed(
            f"{name} returned no info.",
            got=printable(repr(info), 100),
            allowed="a dict",
            fix=f"look at reset() and step() of {name}",
        )
    for key, (is_right, allowed) in _RULES.items():
        if key in info and not is_right(info[key]):
            _refuse(name, key, info[key], allowed)
    return {key: dict(value) if key in _RULES and isinstance(value, Mapping) else value for key, value in info.items()}


def success_so_far(before: bool | None, info: Mapping[str, Any]) -> bool | None:
    """Return the success of an episode after one more step: True if any step succeeded, None if no step reported any."""
    told = info.get("success")
    return before if told is None else bool(before) or bool(told)


def executed_action(name: str, info: Mapping[str, Any], spec: ActionSpec) -> Array | None:
    """Return the executed action (A,) if `info` reports it, else None; raises EnvironmentFailed if it is no valid action."""
    told = info.get("executed_action")
    if told is None:
        return None
    try:
        action = np.array(spec.validate(told), spec.dtype)
    except (InvalidAction, TypeError, ValueError):
        _refuse(name, "executed_action", told, _words(spec))
    if spec.is_discrete:
        return action
    if np.abs(action).max() > 1.0 + ROUNDING:
        _refuse(name, "executed_action", told, _words(spec))
    clipped: Array = np.clip(action, -1.0, 1.0)
    return clipped


def _words(spec: ActionSpec) -> str:
    return f"a whole number from 0 to {spec.size - 1}" if spec.is_discrete else f"{spec.size} finite numbers in [-1, 1]"


def _refuse(name: str, key: str, got: Any, allowed: str) -> None:
    raise EnvironmentFailed(
        f"{name} returned an info[{key!r}] that cannot be used.",
        got=f"{printable(repr(got), 100)} ({type(got).__name__})",
        allowed=allowed,
        fix=f"look at the info of {name}; if the key means something else there, rename it in a wrapper",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.bool_, np.number)) and math.isfinite(value)


def _is_success(value: Any) -> bool:
    return value is None or (_is_number(value) and value in (0, 1))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) and _is_number(each) for key, each in value.items())


def _are_reasons(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def _is_source(value: Any) -> bool:
    return _is_number(value) and value in set(ActionSource)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_NAMED_NUMBERS = "a dict of finite numbers by name"
_COST = "a finite number, 0 or more"
_REASONS = "a list of reasons in words, empty for none"
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "success": (_is_success, "True or False; 0 or 1"),
    "reward_terms": (_are_numbers, _NAMED_NUMBERS),
    MEASURES: (_are_numbers, _NAMED_NUMBERS),
    "costs": (lambda value: _are_numbers(value) and min(value.values(), default=0) >= 0, f"{_NAMED_NUMBERS}, 0 or more"),
    "cost": (lambda value: _is_number(value) and value >= 0, _COST),
    "action_source": (_is_source, ", ".join(f"{source.value} ({source.name})" for source in ActionSource)),
    "stop_reason": (_is_text, "a word"),
    MEASURED_AT: (_is_number, "a finite number of seconds"),
    "instruction": (_is_text, "a text"),
    METADATA: (lambda value: isinstance(value, Mapping), "a dict of facts by name"),
} | dict.fromkeys(VERDICTS, (_are_reasons, _REASONS))
