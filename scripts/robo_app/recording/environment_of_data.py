"""The environment to which converted data belong: its spec, and the size of its observations for a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from robo_datasets.formats.extremes import shown_by
from robo_datasets.remarks import NO_CLOCK
from robo_rl.environments.make import make_environment
from robo_rl.errors import RoboRLError, printable
from robo_rl.spec.environment import EnvironmentSpec, specification


class OfData(NamedTuple):
    """Facts about the environment of converted data."""

    spec: EnvironmentSpec | None
    card: Mapping[str, Any]
    """Facts about the environment that are copied into the card (description) of the new dataset."""
    shown: Mapping[str, float]
    """Entry of the observation -> largest magnitude in a few steps; empty if the environment was not played."""


def environment_of_data(name: str | None, arguments: Mapping[str, Any]) -> OfData:
    """Return facts about an environment, after a few steps in it (none on a robot); empty ones if `name` is None."""
    if name is None:
        return OfData(None, {}, {})
    environment, shown = make_environment(name, **arguments), {}
    try:
        spec = specification(environment)
        if not name.startswith(NO_CLOCK):  # a robot is never moved for a comparison
            shown = dict(shown_by(environment))
    except (RoboRLError, OSError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        print(f"{name} could not be played, so that observations are not compared with it: {printable(str(error))}")
    finally:
        environment.close()
    return OfData(spec, {"environment": name, "arguments": dict(arguments)}, shown)
