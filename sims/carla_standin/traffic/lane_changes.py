"""Conditions of lane changes: a slower leader or the end of the lane, and a gap in the other lane."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
AHEAD, BEHIND = 8.0, 6.0
"""[m] Free distance before and behind the car's middle, in addition to that by the speeds."""
LENGTHS = 5.0
"""Sum of two half lengths of ordinary cars [m], which `AHEAD` and `BEHIND` include; longer vehicles need more room."""
HEADWAY = 0.8
"""Time gap [s] that must remain to the car behind in the other lane."""
SLOWER, NEAR = 0.75, 35.0
"""Share of the wanted speed, and distance [m], below which a leader is overtaken."""
ROOM = 40.0
"""Least length [m] that must remain of the other lane for a lane change to begin."""


def is_free(s: float, speed: float, others_s: Floats, others_speed: Floats, lengths: Floats | float = LENGTHS) -> bool:
    """Return True if a car can change into a gap of another lane.

    Args:
        s: Position of the car along the lane [m].
        speed: Speed of the car [m/s].
        others_s: Positions (n,) [m] of the cars in the lane.
        others_speed: Speeds (n,) [m/s] of the cars in the lane.
        lengths: Half length of the car plus half length of each other car [m].
    """
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
