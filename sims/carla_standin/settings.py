"""Settings of an episode, in the client's encoding."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields
from typing import Any

from carla_standin.errors import Refused

LONGEST = 60.0
"""[s] Longest step; the world divides it into shorter ones."""


@dataclass(frozen=True)
class Settings:
    """Settings of an episode, fields in the order of CARLA's protocol. Only the first three change what the server does."""

    synchronous: bool = False
    """True if time passes only at a client's ticks."""
    no_rendering: bool = False
    """True while cameras send no pictures."""
    fixed_delta: tuple[bool, float] | tuple[bool] = (False,)
    """Duration of a simulation step [s] as (True, duration); (False,) if the client leaves it open."""
    substepping: bool = True
    max_substep_delta: float = 0.01
    max_substeps: int = 10
    max_culling_distance: float = 0.0
    deterministic_ragdolls: bool = True
    tile_stream_distance: float = 3000.0
    actor_active_distance: float = 2000.0
    spectator_as_ego: bool = True

    @classmethod
    def decoded(cls, values: Any) -> Settings:
        """Return a client's settings; raises Refused if they are invalid."""
        if not isinstance(values, list) or len(values) < len(fields(cls)):
            raise Refused("These are no episode settings.", got=values)
        if not isinstance(values[0], bool) or not isinstance(values[1], bool) or not _is_optional_number(values[2]):
            raise Refused("Episode settings begin with two yes or no, and an optional step.", got=values[:3])
        settings = cls(values[0], values[1], tuple(values[2]), *values[3 : len(fields(cls))])
        step = settings.fixed_delta[1] if len(settings.fixed_delta) > 1 else None
        if step is not None and not (math.isfinite(step) and 0 <= step <= LONGEST):
            raise Refused("The fixed step is out of range.", got=step, allowed=f"above 0 and at most {LONGEST:g} s")
        return settings

    def encoded(self) -> list[object]:
        """Return the settings as CARLA's client decodes them."""
        return [list(value) if isinstance(value, tuple) else value for value in astuple(self)]

    def step(self, otherwise: float) -> float:
        """Return the duration [s] of a step, or `otherwise` if the client has fixed none."""
        return self.fixed_delta[1] if len(self.fixed_delta) > 1 and self.fixed_delta[1] > 0 else otherwise


def _is_optional_number(value: Any) -> bool:
    return value == [False] or (isinstance(value, list) and value[:1] == [True] and isinstance(value[-1], int | float))
