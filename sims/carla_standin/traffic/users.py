"""Clients' cars at junctions: the ways that each may take, so that they have a rank as the traffic's own cars have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from carla_standin.actors import VX, VY, YAW, X, Y
from carla_standin.maps.lanes import Lanes
from carla_standin.traffic.junctions import Candidate

Floats = npt.NDArray[np.float64]
NEAREST_LANE = 2.0
"""Largest distance [m] from the middle of a lane at which a client's car counts as on the lane."""
ON_WAY = 1.0
"""Largest distance [m] along x and along y from a point of a way within which a car counts as on that way."""
SAME = 0.8
"""Least cosine of the angle between a car's heading and a way for the car to count as driving along it."""
MOVES = 0.5
"""[m/s] A slower car stands."""
AT_LINE, PATIENCE = 8.0, 3.0
"""Distance [m] from a junction within which a standing car is about to enter, and time [s] for which the traffic expects this.

Such a car starts as soon as its light is green. After that time it may be waiting for somebody else, or be parked.
"""
AHEAD = 5.0
"""Time [s] before a client's car reaches a junction from which on other cars let it go first.

A turn to the left from standing takes four seconds.
"""
UNKNOWN = -1
"""Number that stands for a client's car in lists of the traffic's cars."""


@dataclass(frozen=True)
class Users:
    """Clients' cars that the traffic must give way to: those inside a junction, and those that will soon enter one."""

    inside: list[int]
    """Ways inside junctions on which clients' cars may be; a car between two ways is listed with each."""
    coming: list[Candidate]
    """A candidate for each way through a junction that a client's car may take soon."""


NOBODY = Users([], [])


class Standing:
    """Memory of clients' cars that stand before a junction without a red light: since when [s]."""

    def __init__(self) -> None:
        self.since: dict[int, float] = {}
        """Number of a car -> time [s] since which it stands."""

    def waits(self, number: int, now: float) -> bool:
        """Return True if the traffic waits for a car that stands at the time `now` [s], for PATIENCE at most."""
        return now - self.since.setdefault(number, now) < PATIENCE

    def forget(self, number: int) -> None:
        """Forget since when a car stood: it moves, or it may not enter the junction."""
        self.since.pop(number, None)


def users_of(
    lanes: Lanes, motion: Floats, is_open: npt.NDArray[np.bool_], standing: Standing | None = None, now: float = 0.0
) -> Users:
    """Find where clients' cars are at junctions, so that the traffic gives way to them.

    Args:
        lanes: Lanes of the map.
        motion: (n, 15) State of motion of the clients' cars.
        is_open: True for ways whose light is not red.
        standing: Memory of cars that stand, which is updated; None as if all had just stopped.
        now: Time [s].

    Returns:
        The ways that cars are on inside junctions, and candidates for entering one.
    """
    standing = standing or Standing()
    inside: list[int] = []
    coming: list[Candidate] = []
    for number, (x, y, yaw, vx, vy) in enumerate(motion[:, [X, Y, YAW, VX, VY]].tolist()):
        heading = math.radians(yaw)
        pace = vx * math.cos(heading) + vy * math.sin(heading)
        moves = pace >= MOVES
        if moves and (found := _ways_at(lanes, x, y, heading)):
            standing.forget(number)
            inside += found
            continue
        way, s, away = lanes.nearest(x, y, heading)
        ahead: list[Candidate] = []
        if away < NEAREST_LANE and not lanes.crossing[way]:
            ahead = _entered(lanes, way, float(lanes.length[way]) - s, pace * AHEAD if moves else AT_LINE, is_open)
        if moves or not ahead:
            standing.forget(number)
        if ahead and (moves or standing.waits(number, now)):
            coming += ahead
    return Users(inside, coming)


def _ways_at(lanes: Lanes, x: float, y: float, heading: float) -> list[int]:
    """Return the ways through junctions below a place."""
    around = lanes.crossing_around(x, y)
    if not len(around):
        return []
    points = lanes.points[around]
    near = (np.abs(points[:, 0] - x) < ON_WAY) & (np.abs(points[:, 1] - y) < ON_WAY)
    near &= np.cos(points[:, 2] - heading) > SAME
    return sorted(set(lanes.way_of_point[around[near]].tolist()))


def _entered(lanes: Lanes, way: int, left: float, reach: float, is_open: npt.NDArray[np.bool_]) -> list[Candidate]:
    """Return the ways through the next junction within `reach` [m], each with the distance [m] to it."""
    while left <= reach:
        if not is_open[way]:
            return []
        successors = lanes.ways[way].successors
        if any(lanes.crossing[after] for after in successors):
            return [Candidate(UNKNOWN, after, left) for after in successors if lanes.crossing[after]]
        if len(successors) != 1:
            return []
        way = successors[0]
        left += float(lanes.length[way])
    return []
