"""Detection of each car's leader: the first body in its way, with gap and speed along the way."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from carla_standin.actors import VX, VY, YAW, Actor, X, Y, rows_of
from carla_standin.maps.lanes import Lanes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
LOOK = np.concatenate([np.arange(3.0, 25.0, 2.0), np.arange(25.0, 110.0, 4.0)])
"""[m] Sampled distances ahead of a car's middle."""
AROUND = np.append(np.diff(LOOK), 4.0) / 2 + 0.3
"""Half width [m] of the stretch of a way that each sampled point stands for."""
FARTHEST = float(AROUND.max())
SIGHT, SECONDS = 35.0, 3.5
"""[m] and [s]: smallest range of the detection."""
BEHIND = -6.0
"""Bodies further behind a car's middle than this position [m], positive ahead, are never its leader."""
TIGHT = 0.35
"""A body is in a car's way if the sideways gap between their sides is below this distance [m]."""
LATERAL = 1.2
"""[m/s] Lateral speed of a lane change."""
SLOWEST = 3.0
"""[m/s] Smallest speed for the prediction of a lane change."""
FAR = 1e3
DEGREE = math.pi / 180


class LeaderDetector:
    """Detector of the leaders of all cars of the traffic, among the solid bodies."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.rows = rows_of([])
        self._x, self._y, self._cosine, self._sine = (np.ascontiguousarray(column) for column in lanes.aims.T)

    def reindex(self, cars: list[Actor], solid: list[Actor]) -> None:
        """Find sizes and indices of the cars among the solid bodies again, after actors came or went."""
        self.rows = rows_of(solid)
        known = {actor: number for number, actor in enumerate(cars)}
        own = np.array([known.get(actor, -1) for actor in solid], np.intp)
        half = np.array([actor.box.extent[:2] for actor in solid]).reshape(-1, 2)
        is_car = np.flatnonzero(own >= 0)
        self.self_pairs = own[is_car], is_car
        self.solid_of = np.zeros(len(cars), np.intp)
        self.solid_of[own[is_car]] = is_car
        self.spread = np.maximum(half[:, 0] - half[:, 1], 0.0)
        self.width = np.array([actor.box.extent[1] for actor in cars])
        length = np.array([actor.box.extent[0] for actor in cars])
        self.room = self.width[:, None] + half[:, 1] + TIGHT
        """[m] (cars, bodies) Lateral distance of middles below which a body is in the way."""
        self.reach = (self.spread + np.maximum(self.room, FARTHEST)) ** 2 * 2.0
        """[m2] Squared distance of a body's middle from a sample above which they cannot touch."""
        self.ends = half[:, 1], length
        """[m] from the end circle of a body to its end, and from the middle of a car to its front."""

    def look(
        self, motion: Floats, speed: Floats, ways: tuple[Ints, Ints, Ints], s: Floats, aside: Floats
    ) -> tuple[Floats, Floats]:
        """Return the gap [m] to the first body in the way of each car, `FAR` for none, and its speed [m/s] along the way.

        motion: of the solid bodies. ways: of each car, and its next two, -1 for none. s, aside: distance along and right of it.
        """
        gap, leader = np.full(len(speed), FAR), np.zeros(len(speed))
        x, y, yaw = motion[:, X], motion[:, Y], motion[:, YAW] * DEGREE
        cosine, sine = np.cos(yaw), np.sin(yaw)
        car, other = self._near(x, y, cosine, sine, speed)
        if not len(car):
            return gap, leader
        way_x, way_y, way_cosine, way_sine = self._ahead(ways, s, aside, speed)
        dx, dy = x[other][:, None] - way_x[car], y[other][:, None] - way_y[car]
        # Most samples are far from the body: only those near enough for a touch are tested exactly.
        pair, place = (dx * dx + dy * dy < self.reach[car, other][:, None]).nonzero()
        if len(pair):
            is_first = np.ones(len(pair), bool)  # of each pair's samples
            np.not_equal(pair[1:], pair[:-1], out=is_first[1:])
            begins = is_first.nonzero()[0]
            chosen = pair[begins]
            mine, theirs = car[chosen], other[chosen]
            cars, others = car[pair], other[pair]
            way = way_cosine[cars, place], way_sine[cars, place]
            offset, aim = (dx[pair, place], dy[pair, place]), (cosine[others], sine[others])
            nearest = np.minimum.reduceat(self._touches(offset, aim, way, place, (cars, others)), begins)
            found = np.where(nearest < FAR, nearest - self.ends[0][theirs] - self.ends[1][mine], FAR)
            first = np.abs(LOOK - nearest[:, None]).argmin(1)
            ahead, aside_of = cosine[theirs], sine[theirs]
            same = ahead * way_cosine[mine, first] + aside_of * way_sine[mine, first]
            along = motion[theirs, VX] * ahead + motion[theirs, VY] * aside_of
            order = np.argsort(-found, kind="stable")  # the nearest is written last
            gap[mine[order]], leader[mine[order]] = found[order], np.maximum(along * same, 0.0)[order]
        return gap, leader

    def _near(self, x: Floats, y: Floats, cosine: Floats, sine: Floats, speed: Floats) -> tuple[Ints, Ints]:
        """Return the pairs of a car and another body within its range and not behind it."""
        mine = self.solid_of
        dx, dy = x - x[mine][:, None], y - y[mine][:, None]
        sight = np.maximum(SIGHT, SECONDS * speed + 10.0)[:, None]
        close = dx * dx + dy * dy < sight * sight
        close &= dx * cosine[mine][:, None] + dy * sine[mine][:, None] > BEHIND
        close[self.self_pairs] = False
        car, other = close.nonzero()
        return car, other

    def _ahead(self, ways: tuple[Ints, Ints, Ints], s: Floats, aside: Floats, speed: Floats) -> tuple[Floats, ...]:
        """Return x, y and the cosine and sine of the heading (n, k) at LOOK along the way of each car."""
        lanes, way, place = self.lanes, ways[0][:, None], s[:, None] + LOOK
        for following in ways[1:]:
            onward, length = following[:, None], lanes.length[way]
            over = (place > length) & (onward >= 0)
            place = np.where(over, place - length, place)
            way = np.where(over, onward, way)
        index = np.minimum((place / lanes.step[way]).astype(np.intp), lanes.last[way] + 1)
        index += lanes.start[way]
        x, y, cosine, sine = (column.take(index) for column in (self._x, self._y, self._cosine, self._sine))
        if aside.any():  # during a lane change a car still occupies the old lane
            shift = aside[:, None]
            left = np.abs(shift) - LATERAL * LOOK / np.maximum(speed, SLOWEST)[:, None]
            right = np.sign(shift) * np.maximum(left, 0.0)
            x, y = x - right * sine, y + right * cosine
        return x, y, cosine, sine

    def _touches(
        self,
        offset: tuple[Floats, Floats],
        aim: tuple[Floats, Floats],
        way: tuple[Floats, Floats],
        place: Ints,
        pairs: tuple[Ints, Ints],
    ) -> Floats:
        """Return the distance [m] from a car's middle to a body's touch of its way at samples of LOOK, `FAR` without a touch.

        All are (n,): offset from the sample to the body's middle, direction of the body and of the way, car and body.
        """
        (dx, dy), (ax, ay), (cosine, sine), spread = offset, aim, way, self.spread[pairs[1]]
        # A body is a row of three circles: its middle and its ends, which lie aside by how it is turned to the way.
        reach, across = np.empty((3, len(place))), np.empty((3, len(place)))
        for parts, middle, end in (
            (reach, dx * cosine + dy * sine, spread * (ax * cosine + ay * sine)),
            (across, dy * cosine - dx * sine, spread * (ay * cosine - ax * sine)),
        ):
            parts[0] = middle
            np.subtract(middle, end, out=parts[1])
            np.add(middle, end, out=parts[2])
        hit = (np.abs(across) < self.room[pairs]) & (np.abs(reach) < AROUND[place])
        touches: Floats = np.where(hit, LOOK[place] + reach, FAR).min(0)
        return touches
