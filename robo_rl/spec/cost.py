"""Constraint costs: named quantities whose sum over an episode has a limit (constrained MDPs, Altman 1999)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robo_rl.errors import InvalidEpisode, InvalidSetting

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LIMIT = re.compile(r"(?P<value>\S+?)(?:\s+(?P<unit>(?!per\b|/).*?))?(?:\s+per\s+(?P<per>\w+)|\s*/\s*(?P<of>step|episode))?")
PLAIN = "cost"
"""Name of a cost that an environment reports as `info["cost"]`, as Safety-Gymnasium does, without declaring it."""


@dataclass(frozen=True)
class CostSpec:
    """Description of a constraint cost: its name, unit, meaning, and the limit of its undiscounted sum over an episode.

    A cost is 0 or more at each step.
    """

    name: str
    """Name in flat snake_case."""
    limit: float
    """Largest sum over an episode, in `unit`."""
    unit: str = "1"
    """SI unit of the sum, "1" for a number of steps or events."""
    meaning: str = ""
    """Meaning in words."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting(f"Cost name {self.name!r} is not flat snake_case.", got=self.name, allowed=_NAME.pattern)
        is_number = isinstance(self.limit, (int, float)) and not isinstance(self.limit, bool)
        if not is_number or not math.isfinite(self.limit) or self.limit < 0:
            raise InvalidSetting(
                f"Cost {self.name!r} has no usable limit.",
                got=self.limit,
                allowed=f"the largest sum over an episode, 0 or more, in {_unit(self.unit)}",
                fix="a cost that nothing limits is a measure (robo_rl.evaluation.measures)",
            )

    def limit_of(self, setting: float | str) -> float:
        """Return the limit that a user gave as a number or in words, such as "25", "10 N s", "3 per episode".

        Raises InvalidSetting for another unit, a limit per step, and a number that is negative or not finite.
        """
        match = _LIMIT.fullmatch(" ".join(str(setting).split()))
        unit, per = (match["unit"], match["per"] or match["of"]) if match else (None, None)
        allowed = f"a number 0 or more in {_unit(self.unit)}, summed over an episode"
        if not match or not _is_limit(match["value"]):
            raise InvalidSetting(f"The limit of cost {self.name!r} is no limit.", got=setting, allowed=allowed)
        if per not in (None, "episode"):
            what = f"The limit of cost {self.name!r} is per {per}; limits hold for the sum over an episode."
            raise InvalidSetting(what, got=setting, allowed=allowed, fix="multiply it by the steps of an episode")
        if unit not in (None, self.unit):
            raise InvalidSetting(f"The limit of cost {self.name!r} has another unit.", got=setting, allowed=allowed)
        return float(match["value"])


def costs_of(info: Mapping[str, Any]) -> Mapping[str, float]:
    """Return name -> cost of a step, read from `info["costs"]` or from Safety-Gymnasium's `info["cost"]`.

    Empty without costs.
    """
    if "costs" in info:
        return dict(info["costs"])
    return {PLAIN: info[PLAIN]} if PLAIN in info else {}


def cost_names(declared: tuple[CostSpec, ...]) -> tuple[str, ...]:
    """Return the names of the declared costs in alphabetical order; ("cost",) if none are declared."""
    return tuple(sorted(cost.name for cost in declared)) or (PLAIN,)


def require_costs(costs: Mapping[str, float], declared: tuple[CostSpec, ...], *, where: str) -> None:
    """Raise InvalidEpisode unless `costs`, those of one step, have a value for each declared cost.

    where: place of the step for the message, such as environment, step and seed.
    """
    missing = [cost.name for cost in declared if cost.name not in costs]
    if missing:
        raise InvalidEpisode(
            f"{where}: a declared cost is missing.",
            got=", ".join(costs) or "no costs",
            allowed=", ".join(cost.name for cost in declared),
            fix='report all of them in info["costs"] of every step',
        )


def _is_limit(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and float(text) >= 0
    except ValueError:
        return False


def _unit(unit: str) -> str:
    return "steps or events (unit 1)" if unit == "1" else unit
