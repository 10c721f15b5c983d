"""When a car changes lanes: to get past who is slower, and because its lane ends; only into a gap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
AHEAD, BEHIND = 8.0, 6.0
"""[m] that must be free before and behind its middle, besides what the speeds ask for."""
LENGTHS = 5.0
"""[m] of two half cars, which these hold; what is longer needs more."""
HEADWAY = 0.8
"""[s] to the one that will be behind."""
SLOWER, NEAR = 0.75, 35.0
"""A leader below this share of the speed that a car wants, and nearer than this [m], is worth passing."""
ROOM = 40.0
"""[m] of a lane that must be left."""


def is_free(s: float, speed: float, others_s: Floats, others_speed: Floats, lengths: Floats | float = LENGTHS) -> bool:
    """Return True if a car fits between the others of a lane; lengths: half of its own and half of each other [m]."""
    offset = others_s - s
    before = offset >= 0
    needed = np.where(
        before,
        AHEAD + np.maximum(speed - others_speed, 0.0) * 2.0,
        BEHIND + HEADWAY * others_speed + np.maximum(others_speed - speed, 0.0) * 2.0,
    )
    return bool((np.abs(offset) > needed + np.maximum(lengths - LENGTHS, 0.0)).all())


def wants_past(speed_wanted: float, gap: float, leader: float) -> bool:
    """Return True if the car ahead is near and slow enough to overtake."""
    return gap < NEAR and leader < SLOWER * speed_wanted
