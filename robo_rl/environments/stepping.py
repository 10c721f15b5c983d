"""Reset and step environments of any origin: every failure inside becomes one error with its location.

Observations and infos are copies, because many simulators write each step into the same buffer.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from robo_rl.environments.step_info import checked_info
from robo_rl.errors import EnvironmentFailed, RoboRLError, printable
from robo_rl.spec.environment import Observation

Step = tuple[Observation, float, bool, bool, Mapping[str, Any]]


def reset(environment: gymnasium.Env[Any, Any], name: str, **options: Any) -> tuple[Observation, Mapping[str, Any]]:
    """Return the first observation and info; raises EnvironmentFailed. name: of the environment, for the error."""
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
    """Return a step with its reward as a float, which may be NaN; raises EnvironmentFailed."""
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
    return EnvironmentFailed(
        f"{name} raised an error in {what}().",
        got=f"{type(error).__name__}: {printable(str(error))}",
        fix=f"look at {printable(place.filename)}, line {place.lineno}, in {place.name}",
    )
