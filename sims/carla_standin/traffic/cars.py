"""Cars of the server's traffic, which follow the middles of lanes and move as one batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from carla_standin.actors import AX, AY, VX, VY, WZ, YAW, Actor, Bodies, X, Y, rows_of, span_of
from carla_standin.approach import stopping_way
from carla_standin.errors import Refused
from carla_standin.layouts import TrafficLightState
from carla_standin.lights import Lights
from carla_standin.maps.town import Town
from carla_standin.traffic import following, lane_changes
from carla_standin.traffic.following import DRIVER
from carla_standin.traffic.junctions import LONGEST_WAIT, Candidate
from carla_standin.traffic.leader_detection import DEGREE, FAR, LATERAL, LeaderDetector
from carla_standin.traffic.users import NOBODY, Standing, users_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
NEAREST_LANE = 3.0
"""Largest distance [m] from a lane at which a car of the traffic may start."""
WHIM = 0.02
"""Rate [1/s] at which drivers change the lane at random."""
SHORT = 30.0
"""[m] Length of a lane below which its red light is seen from the lane before it."""
RED, GREEN, YELLOW, OFF = (
    int(state) for state in (TrafficLightState.RED, TrafficLightState.GREEN, TrafficLightState.YELLOW, TrafficLightState.OFF)
)
STANDING = 0.1
"""Speed [m/s] below which a car of the traffic counts as standing."""
HALT, AT_LINE = 1.0, 2.5
"""[s] Stop at a stop sign; [m] largest distance from the car's front to the end of the lane for a valid stop."""


@dataclass(frozen=True)
class Stretch:
    """Values of the cars' present lanes, valid until a car enters another lane."""

    length: Floats
    """Length [m] of the car's present lane."""
    wanted: Floats
    """Speed [m/s] that the driver wants on the present lane."""
    wanted_then: Floats
    """Speed [m/s] that is wanted on the car's next lane; `FAR` if there is no next lane."""
    is_last: Flags
    """True if the lane has no next lane."""
    entering: Flags
    """True if the next lane lies in a junction, and this one does not."""
    outside: Flags
    """True for cars that are not about to enter a junction, the opposite of `entering`."""
    crossing: Flags
    """True if the lane lies in a junction."""
    light: Ints
    """Index of the traffic light at the end of the car's lane; -1 for none."""
    is_dark: Flags
    """True for cars whose lane has no traffic light at its end."""
    short_light: Ints
    """Traffic light at the end of a next lane shorter than `SHORT`, -1 for none."""
    short_length: Floats
    """Length [m] of the next lane that is shorter than `SHORT`, at whose end `short_light` is."""
    ending: tuple[int, ...]
    """Indices of the cars whose lane ends, so that they look for another lane in every step."""


class Cars:
    """All cars of the traffic, one entry per car in each array."""

    NAMES = ("way", "next", "after", "s", "speed", "aside", "half", "eager", "gap", "leader", "waited")

    def __init__(self, town: Town, lights: Lights) -> None:
        self.lanes, self.junctions, self.lights = town.lanes, town.junctions, lights
        self.detector = LeaderDetector(town.lanes)
        self.actors: list[Actor] = []
        self.random: list[np.random.Generator] = []
        self.placed, self.span = 0, span_of(rows_of([]))
        """Number of cars at the last reindexing, and their rows."""
        self.way, self.next, self.after = (np.zeros(0, np.intp) for _ in range(3))
        """Lane of a car and its next two lanes; -1 for none."""
        self.s, self.speed, self.aside, self.half, self.eager = (np.zeros(0) for _ in range(5))
        """place [m] along the lane; speed [m/s]; offset [m] to the right while changing lanes; half length [m]; share of the
        speed limit that the car drives"""
        self.acceleration = np.zeros(0)
        """[m/s2] in the last step."""
        self.gap, self.leader = np.zeros(0), np.zeros(0)
        """distance [m] to the leader and its speed [m/s], in the last step"""
        self.waited = np.zeros(0)
        """Time [s] that the car has waited before the junction, red lights excluded."""
        self.admitted = np.zeros(0, bool)
        self.standing, self.now = Standing(), 0.0
        """Clients' cars that stand before junctions, and the time [s] of the step."""
        self.turn = 0
        """Number of the car that looks for a better lane in this step."""
        self.seen: Floats | None = None
        """Motion of all solid bodies at the last detection; None if outdated."""
        self.stretch: Stretch | None = None
        """Values of the cars' lanes; None after a car has entered another lane."""

    def __len__(self) -> int:
        return len(self.actors)

    # adding and removing

    def check(self, pose: list[list[float]]) -> None:
        """Raise Refused if the start pose of a car is not on a lane."""
        _, _, distance = self.lanes.nearest(pose[0][0], pose[0][1], math.radians(pose[1][1]))
        if distance > NEAREST_LANE:
            raise Refused("A car with driver=traffic must begin on a lane and look along it.", got=pose)

    def add(self, actor: Actor, bodies: Bodies) -> None:
        """Add a car at its present pose."""
        x, y, yaw = bodies.motion[actor.row, [X, Y, YAW]]
        way, s, _ = self.lanes.nearest(x, y, math.radians(yaw))
        try:
            seed = int(actor.attributes.get("driver_seed", "0"))
        except ValueError:
            seed = 0
        random = np.random.default_rng([abs(seed), actor.place])
        self.turn = self.turn if self.actors else 0
        self.actors.append(actor)
        self.random.append(random)
        values = [way, -1, -1, s, 0.0, 0.0, actor.box.extent[0], random.uniform(0.8, 1.05), FAR, 0.0, 0.0]
        for name, value in zip(self.NAMES, values, strict=True):
            array = getattr(self, name)
            setattr(self, name, np.append(array, np.array([value], array.dtype)))
        self.admitted = np.append(self.admitted, False)
        self.stretch = None
        self._plan(len(self) - 1)
        self.acceleration = np.zeros(len(self))
        self._write(bodies, 0.05)

    def remove(self, actor: Actor) -> None:
        """Remove a car from the traffic."""
        number = self.actors.index(actor)
        del self.actors[number], self.random[number]
        for name in (*self.NAMES, "acceleration", "admitted"):
            setattr(self, name, np.delete(getattr(self, name), number))
        self.stretch = None

    def reindex(self, bodies: Bodies) -> None:
        """Update rows and the other bodies."""
        self.seen = None
        self.placed, self.span = len(self), span_of(rows_of(self.actors))
        solid = [actor for actor in bodies if actor.is_obstacle]
        self.detector.reindex(self.actors, solid)
        users = [actor for actor in solid if actor.type_id.startswith("vehicle.") and actor not in self.actors]
        self.users, self.standing = rows_of(users), Standing()
        self.user_half = np.array([actor.box.extent[0] for actor in users])
        """[m] Half lengths of clients' cars."""

    # a step

    def step(self, bodies: Bodies, dt: float) -> None:
        """Move all cars of the traffic by one step of `dt` [s]."""
        if not self.actors:
            return
        self.now += dt
        self.look(bodies)
        self.seen = None
        self._change_lanes(dt)
        stretch = self._stretch()
        left = stretch.length - self.s
        self._ask(bodies, left, stretch, dt)
        acceleration = self._acceleration(left, stretch)
        speed = np.maximum(self.speed + dt * acceleration, 0.0)
        self.s += dt * 0.5 * (self.speed + speed)
        self.acceleration = (speed - self.speed) / dt
        self.speed = speed
        self.aside -= np.minimum(np.maximum(self.aside, -LATERAL * dt), LATERAL * dt)
        for number in (self.s >= stretch.length).nonzero()[0].tolist():
            self._go_on(number)
        self._write(bodies, dt)

    def _stretch(self) -> Stretch:
        if self.stretch is None:
            lanes, way, then = self.lanes, self.way, self.next
            entering = (then >= 0) & lanes.crossing[then] & ~lanes.crossing[way]
            light = self.lights.of_way[way]
            self.stretch = Stretch(
                lanes.length[way],
                lanes.speed[way] * self.eager,
                np.where(then >= 0, lanes.speed[then] * self.eager, FAR),
                then < 0,
                entering,
                ~entering,
                lanes.crossing[way],
                light,
                light < 0,
                np.where((then >= 0) & (lanes.length[then] < SHORT), self.lights.of_way[then], -1),
                lanes.length[then],
                tuple(np.flatnonzero(lanes.ends[way]).tolist()),
            )
        return self.stretch

    def _plan(self, number: int) -> None:
        """Choose the next two lanes unless they are set."""
        if self.next[number] < 0:
            self.next[number] = self._choice(number, int(self.way[number]))
        if self.after[number] < 0 <= self.next[number]:
            self.after[number] = self._choice(number, int(self.next[number]))

    def _choice(self, number: int, way: int) -> int:
        found = self.lanes.ways[way].successors
        if len(found) < 2:
            return found[0] if found else -1
        return found[int(self.random[number].integers(len(found)))]

    def _go_on(self, number: int) -> None:
        way = self.way[number]
        if self.next[number] < 0:
            self.s[number], self.speed[number] = self.lanes.length[way], 0.0
            return
        self.stretch = None
        self.s[number] -= self.lanes.length[way]
        self.way[number], self.next[number], self.after[number] = self.next[number], self.after[number], -1
        self.admitted[number] = self.lanes.junction[self.way[number]] != -1
        self._plan(number)

    def look(self, bodies: Bodies) -> None:
        """Update the gap to each car's leader and its speed along the way, unless nothing has moved."""
        motion = bodies.motion[self.detector.rows]
        if self.seen is None or not np.array_equal(motion, self.seen):
            self.seen = None  # until the detection is complete
            self.user_places = bodies.motion[self.users, :2]
            ways = self.way, self.next, self.after
            self.gap, self.leader = self.detector.look(motion, self.speed, ways, self.s, self.aside)
            self.seen = motion

    def _acceleration(self, left: Floats, stretch: Stretch) -> Floats:
        wanted = np.minimum(stretch.wanted, following.approach(stretch.wanted_then, left - 1.0))
        must_stop = stretch.is_last | (stretch.entering & ~self.admitted)  # the end of the lane is as far as it may go
        gaps, leaders = np.empty((2, len(left))), np.zeros((2, len(left)))
        gaps[0], leaders[0] = self.gap, self.leader
        line = left - self.half + DRIVER.gap - 0.5
        gaps[1] = np.where(must_stop, line, FAR)
        if (stretch.short_light >= 0).any():  # a lane on which it could not stop any more
            is_red = (stretch.short_light >= 0) & (self.lights.colours[stretch.short_light] == RED)
            gaps[1] = np.minimum(gaps[1], np.where(is_red, line + stretch.short_length, FAR))
        who, end = following.interaction(self.speed, gaps, leaders)
        acceleration = following.free_road(self.speed, wanted)
        acceleration += who
        return np.asarray(np.maximum(np.minimum(acceleration, end + DRIVER.acceleration), -DRIVER.hardest))

    # junctions

    def _ask(self, bodies: Bodies, left: Floats, stretch: Stretch, dt: float) -> None:
        """Decide which cars may enter a junction; they keep the permission to its end, unless a light turns red."""
        room, square = left - self.half, self.speed * self.speed
        may_ask = room < np.maximum(12.0, 4.0 + square / (2 * DRIVER.comfort) + self.speed)
        if len(self.lights):
            may_ask &= self._light_is_open(stretch, room < square / (2 * DRIVER.hardest * 0.7))
        self.admitted &= stretch.outside | may_ask
        asking = (stretch.entering & may_ask & ~self.admitted).nonzero()[0]
        if len(asking):
            asking = asking[self._is_let_by(asking)]
        self.waited[stretch.outside] = 0.0
        if not len(asking):
            return
        held = self.junctions.halts[self.way[asking]]
        self.waited[asking] += dt * (self.speed[asking] < STANDING) * ~(held & (room[asking] > AT_LINE))
        asking = asking[~held | (self.waited[asking] >= HALT)]
        candidates = [
            Candidate(number, way, float(left[number]), float(self.waited[number]), self._extra(number, way))
            for number, way in zip(asking.tolist(), self.next[asking].tolist(), strict=True)
            if self._has_room(number)
        ]
        if not candidates:
            return
        inside = [(way, self._extra(number, way)) for number, way in self._taken(stretch)]
        users = bodies.motion[self.users]
        theirs = users_of(self.lanes, users, self.lights.open_ways(), self.standing, self.now) if len(users) else NOBODY
        inside += [(way, 0.0) for way in theirs.inside]
        sweeps = partial(self._sweeps, users)
        self.admitted[self.junctions.admitted(candidates, inside, sweeps, theirs.coming)] = True

    def _sweeps(self, users: Floats) -> tuple[Floats, Floats]:
        """Return start (n, 2) and way (n, 2) [m] of clients' cars: from the rear to where the front stops, straight on."""
        yaw = users[:, YAW] * DEGREE
        body = self.user_half[:, None] * np.column_stack([np.cos(yaw), np.sin(yaw)])
        return users[:, :2] - body, 2.0 * body + stopping_way(users[:, VX : VY + 1])

    def _light_is_open(self, stretch: Stretch, cannot_stop: Flags) -> Flags:
        colour = self.lights.colours[stretch.light]
        # Who turns to the left across a queue gets through while it is yellow, or not at all.
        is_open = (colour == GREEN) | (colour >= OFF) | ((colour == YELLOW) & (cannot_stop | (self.waited >= LONGEST_WAIT)))
        return np.asarray(stretch.is_dark | is_open | (self.admitted & cannot_stop))

    def _taken(self, stretch: Stretch) -> list[tuple[int, int]]:
        """Return the cars in junctions or with permission to enter one, each with its way there."""
        inside, soon = stretch.crossing.nonzero()[0], (stretch.entering & self.admitted).nonzero()[0]
        ways = self.way[inside].tolist() + self.next[soon].tolist()
        return list(zip(inside.tolist() + soon.tolist(), ways, strict=True))

    def _extra(self, number: int, way: int) -> float:
        return self.junctions.extra(way, float(self.half[number]), float(self.detector.width[number]))

    def _is_let_by(self, cars: Ints) -> Flags:
        """Return for each car whether all cars ahead on its lane may enter the junction.

        Otherwise a car behind a waiting one could block the crossing ways of that one, and neither would move.
        """
        held = np.where(self.admitted, -1.0, self.s)
        return np.asarray(((held <= self.s[cars, None]) | (self.way != self.way[cars, None])).all(1))

    def _has_room(self, number: int) -> bool:
        """Return True if there is room for a car behind the junction, so that it does not stop inside."""
        way = int(self.after[number])
        if way >= 0 and self.lanes.crossing[way]:  # a way of several sections: the room is behind the last
            way = next(iter(self.lanes.ways[self.junctions.last(way)].successors), -1)
        if way < 0:
            return True
        there = self.way == way
        tail = self.s[there] - self.half[there]
        slow = self.speed[there] < 2.0
        return not bool((tail[slow] < 2 * self.half[number] + DRIVER.gap).any())

    # lanes

    def _change_lanes(self, dt: float) -> None:
        """Let one car a step look for a better lane, and all cars on ending lanes."""
        self.turn = turn = (self.turn + 1) % len(self)
        for number in self._stretch().ending:
            self._try(number, self.lanes.ways[self.way[number]].left, must=True)
        way = self.lanes.ways[self.way[turn]]
        if not self.lanes.ends[self.way[turn]] and way.junction == -1 and abs(self.aside[turn]) < 0.1:
            self._look_beside(turn, dt)

    def _look_beside(self, number: int, dt: float) -> None:
        way = self.lanes.ways[self.way[number]]
        wanted = float(self.lanes.speed[self.way[number]] * self.eager[number])
        slow = lane_changes.wants_past(wanted, float(self.gap[number]), float(self.leader[number]))
        sides = [side for side in (way.left, way.right) if side >= 0]
        if sides and slow:
            any(self._try(number, side) for side in sides)
        elif sides and float(self.random[number].random()) < WHIM * len(self) * dt:
            self._try(number, sides[int(self.random[number].integers(len(sides)))])

    def _try(self, number: int, side: int, *, must: bool = False) -> bool:
        """Change to an adjacent lane if there is room; return whether it did."""
        if side < 0 or self.lanes.ways[side].closes:
            return False
        lanes, way = self.lanes, self.way[number]
        s = float(self.s[number] * lanes.length[side] / lanes.length[way])
        if not must and lanes.length[side] - s < lane_changes.ROOM:
            return False
        there = (self.way == side) & (np.arange(len(self)) != number)
        others_s, others_speed, half = self.s[there], self.speed[there], self.half[there]
        for before in lanes.predecessors[side]:  # cars on the lanes behind
            coming = self.way == before
            others_s = np.append(others_s, self.s[coming] - lanes.length[before])
            others_speed, half = np.append(others_speed, self.speed[coming]), np.append(half, self.half[coming])
        if not self._users_leave_room(side, s) or not lane_changes.is_free(
            s, float(self.speed[number]), others_s, others_speed, half + self.half[number]
        ):
            return False
        here, adjacent = lanes.pose(int(way), float(self.s[number])), lanes.pose(side, s)
        right = (here[0] - adjacent[0]) * -math.sin(adjacent[2]) + (here[1] - adjacent[1]) * math.cos(adjacent[2])
        self.stretch = None
        self.aside[number] += right
        self.way[number], self.s[number], self.next[number], self.after[number] = side, s, -1, -1
        self._plan(number)
        return True

    def _users_leave_room(self, side: int, s: float) -> bool:
        """Return True if no client's car is near a place `s` [m] along the lane at a side."""
        users = self.user_places
        if not len(users):
            return True
        place = self.lanes.pose(side, s)
        return bool((np.hypot(users[:, 0] - place[0], users[:, 1] - place[1]) > 12.0).all())

    # records

    def _write(self, bodies: Bodies, dt: float) -> None:
        """Write the cars' poses, velocities and accelerations into the array of motions."""
        rows = span_of(rows_of(self.actors)) if len(self.actors) != self.placed else self.span
        x, y, heading = self.lanes.poses(self.way, self.s).T
        cosine, sine = np.cos(heading), np.sin(heading)
        if self.aside.any():
            x, y = x - self.aside * sine, y + self.aside * cosine
            lean = np.sign(self.aside) * LATERAL / np.maximum(self.speed, 3.0)
            heading = heading - np.where(np.abs(self.aside) > 0.05, lean, 0.0)
            cosine, sine = np.cos(heading), np.sin(heading)
        block = bodies.motion[rows]
        yaw = (np.degrees(heading) + 180.0) % 360.0 - 180.0
        block[:, WZ] = ((yaw - block[:, YAW] + 180.0) % 360.0 - 180.0) / dt
        block[:, X], block[:, Y], block[:, YAW] = x, y, yaw
        vx, vy = self.speed * cosine, self.speed * sine
        block[:, AX], block[:, AY] = (vx - block[:, VX]) / dt, (vy - block[:, VY]) / dt
        block[:, VX], block[:, VY] = vx, vy
        if not isinstance(rows, slice):
            bodies.motion[rows] = block

    def write(self, bodies: Bodies) -> None:
        """Write pedals into the records for snapshots."""
        if not self.actors:
            return
        acceleration, pedals = self.acceleration, np.zeros((len(self), 3), np.float32)
        pedals[:, 0] = np.minimum(np.maximum(acceleration / DRIVER.acceleration, 0.0), 1.0)
        pedals[:, 2] = np.minimum(np.maximum(-acceleration / DRIVER.hardest, 0.0), 1.0)
        bodies.records["pedals"][self.span] = pedals
