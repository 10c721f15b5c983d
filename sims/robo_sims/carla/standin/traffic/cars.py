"""The cars that drive themselves: they run on the middles of lanes and are moved all at once."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import AX, AY, VX, VY, WZ, YAW, Actor, Bodies, X, Y, rows_of
from robo_sims.carla.standin.layouts import Colour
from robo_sims.carla.standin.lights import Lights
from robo_sims.carla.standin.maps.town import Town
from robo_sims.carla.standin.responses import Refused
from robo_sims.carla.standin.traffic import following, lane_changes
from robo_sims.carla.standin.traffic.following import DRIVER
from robo_sims.carla.standin.traffic.junctions import Candidate

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
LOOK = np.concatenate([np.arange(3.0, 25.0, 2.0), np.arange(25.0, 110.0, 4.0)])
"""[m] ahead of a car's middle, where it looks for others."""
AROUND = np.append(np.diff(LOOK), 4.0) / 2 + 0.3
"""[m] along the way that each place stands for, to either side."""
CIRCLES = np.array([0.0, -1.0, 1.0])[:, None, None]
"""Where the circles of a body are, as parts of the way from its middle to its end."""
SIGHT, SECONDS = 35.0, 3.5
"""[m] and [s]: a car looks so far, at least."""
TIGHT = 0.35
"""[m] between sides at which another is in the way."""
NEAREST_LANE = 3.0
"""[m] from a lane within which a car may begin."""
LATERAL = 1.2
"""[m/s] sideways in a change of lanes."""
SOON = np.array([0.0, 0.7, 1.4, 2.1])
"""[s] ahead for which the way of a client's car is foreseen."""
SLOWEST = 3.0
"""[m/s] at which a change of lanes is foreseen, at least."""
WHIM = 0.02
"""[1/s] how often a car would rather drive in another lane, without a reason."""
STANDING = 0.1
"""[m/s]"""
FAR = 1e3
DEGREE = math.pi / 180


class Cars:
    """All of them, one entry a car in each array."""

    NAMES = ("way", "next", "after", "s", "speed", "aside", "half", "eager", "gap", "leader", "waited")

    def __init__(self, town: Town, lights: Lights) -> None:
        self.lanes, self.junctions, self.lights = town.lanes, town.junctions, lights
        self.actors: list[Actor] = []
        self.random: list[np.random.Generator] = []
        self.rows = rows_of([])
        self.way, self.next, self.after = (np.zeros(0, np.intp) for _ in range(3))
        """The lane of a car and the two that it takes then; -1 where there is none."""
        self.s, self.speed, self.aside, self.half, self.eager = (np.zeros(0) for _ in range(5))
        """[m] along its lane; [m/s]; [m] right of the lane while it changes; [m] half length; share of the limit it drives"""
        self.gap, self.leader = np.zeros(0), np.zeros(0)
        """[m] to whoever is ahead and its speed [m/s], as of the last step"""
        self.waited = np.zeros(0)
        """[s] that a car has stood before its junction, though no light held it"""
        self.admitted = np.zeros(0, bool)
        self.turn = 0
        """Whose turn it is to look for a better lane."""
        self.seen: Floats | None = None
        """Motion of all that is solid, as of the last look; None where it counts no more."""

    def __len__(self) -> int:
        return len(self.actors)

    # coming and going

    def check(self, pose: list[list[float]]) -> None:
        """Raises Refused where a car would not begin on a lane."""
        _, _, distance = self.lanes.nearest(pose[0][0], pose[0][1], math.radians(pose[1][1]))
        if distance > NEAREST_LANE:
            raise Refused("A car with driver=traffic must begin on a lane and look along it.", got=pose)

    def add(self, actor: Actor, bodies: Bodies) -> None:
        """Takes over a car where it stands."""
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
        self._plan(len(self) - 1)
        self._write(bodies, np.zeros(len(self)), 0.05)

    def remove(self, actor: Actor) -> None:
        """Forgets a car."""
        number = self.actors.index(actor)
        del self.actors[number], self.random[number]
        for name in (*self.NAMES, "admitted"):
            setattr(self, name, np.delete(getattr(self, name), number))

    def reindex(self, bodies: Bodies) -> None:
        """Notes rows anew; and who else is there."""
        self.seen = None
        self.rows = rows_of(self.actors)
        solid = [actor for actor in bodies if actor.is_solid]
        self.other_rows = rows_of(solid)
        known = {actor: number for number, actor in enumerate(self.actors)}
        own = np.array([known.get(actor, -1) for actor in solid], np.intp)
        half = np.array([actor.box.extent[:2] for actor in solid]).reshape(-1, 2)
        self.other_car, self.is_car = own, np.flatnonzero(own >= 0)
        self.solid_of = np.zeros(len(self), np.intp)
        self.solid_of[own[self.is_car]] = self.is_car
        self.other_width, self.spread = half[:, 1], np.maximum(half[:, 0] - half[:, 1], 0.0)
        self.width = np.array([actor.box.extent[1] for actor in self.actors])
        self.users = rows_of([actor for actor in solid if actor.type_id.startswith("vehicle.") and actor not in known])

    # a step

    def step(self, bodies: Bodies, dt: float) -> None:
        """Moves all cars."""
        if not self.actors:
            return
        self.look(bodies)
        self.seen = None
        self._change_lanes(dt)
        left = self.lanes.length[self.way] - self.s
        entering = (self.next >= 0) & self.lanes.crossing[self.next] & ~self.lanes.crossing[self.way]
        self._ask(bodies, left, entering, dt)
        acceleration = self._acceleration(left, entering)
        speed = np.maximum(self.speed + dt * acceleration, 0.0)
        self.s += dt * 0.5 * (self.speed + speed)
        acceleration = (speed - self.speed) / dt
        self.speed = speed
        self.aside -= np.minimum(np.maximum(self.aside, -LATERAL * dt), LATERAL * dt)
        for number in np.flatnonzero(self.s >= self.lanes.length[self.way]):
            self._go_on(int(number))
        self._write(bodies, acceleration, dt)

    def _plan(self, number: int) -> None:
        """Chooses the next two lanes where they are not chosen."""
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
        self.s[number] -= self.lanes.length[way]
        self.way[number], self.next[number], self.after[number] = self.next[number], self.after[number], -1
        self.admitted[number] = self.lanes.junction[self.way[number]] != -1
        self._plan(number)

    def _ahead(self) -> Floats:
        """Returns (n, k, 4) x, y and the cosine and sine of the heading at LOOK along the ways of all cars."""
        lanes, way, s = self.lanes, self.way[:, None], self.s[:, None] + LOOK
        for following_way in (self.next[:, None], self.after[:, None]):
            length = lanes.length[way]
            over = (s > length) & (following_way >= 0)
            s = np.where(over, s - length, s)
            way = np.where(over, following_way, way)
        index = np.minimum((s / lanes.step[way]).astype(np.intp), lanes.last[way] + 1)
        ahead = np.asarray(lanes.aims[lanes.start[way] + index])
        if self.aside.any():  # while it changes lanes it is still in the way of those of the old one
            left = np.abs(self.aside)[:, None] - LATERAL * LOOK / np.maximum(self.speed, SLOWEST)[:, None]
            right = np.sign(self.aside)[:, None] * np.maximum(left, 0.0)
            ahead[..., 0] -= right * ahead[..., 3]
            ahead[..., 1] += right * ahead[..., 2]
        return ahead

    def look(self, bodies: Bodies) -> None:
        """Finds the gap to whoever is first in the way, and its speed along the way, unless nothing has moved since it did."""
        motion = bodies.motion[self.other_rows]
        if self.seen is None or not np.array_equal(motion, self.seen):
            self.seen = None  # until the whole of it is seen
            self._look(bodies, motion)
            self.seen = motion

    def _look(self, bodies: Bodies, motion: Floats) -> None:
        self.gap, self.leader = np.full(len(self), FAR), np.zeros(len(self))
        self.user_places = bodies.motion[self.users, :2]
        yaw = motion[:, YAW] * DEGREE
        aims = np.stack([np.cos(yaw), np.sin(yaw)])
        car, other = self._near(bodies.motion[self.rows], motion, aims)
        if not len(car):
            return
        ahead = self._ahead()
        # Most are nowhere near the way: only those are looked at closely whose middle is near enough for a touch.
        room = self.width[car] + self.other_width[other] + TIGHT
        dx, dy = motion[other, X, None] - ahead[car, :, 0], motion[other, Y, None] - ahead[car, :, 1]
        reach = (self.spread[other] + np.maximum(room, AROUND.max())) ** 2 * 2.0
        close = np.flatnonzero((dx * dx + dy * dy).min(1) < reach)
        if len(close):
            pairs = car[close], other[close]
            self._look_closely(
                motion, aims[:, other[close]], ahead[car[close], :, 2:], (dx[close], dy[close]), room[close], pairs
            )

    def _look_closely(
        self, motion: Floats, aim: Floats, way: Floats, offset: tuple[Floats, Floats], room: Floats, pairs: tuple[Ints, Ints]
    ) -> None:
        (car, other), (dx, dy), cosine, sine = pairs, offset, way[..., 0], way[..., 1]
        along, across = dx * cosine + dy * sine, dy * cosine - dx * sine
        # A body is a row of three circles: its middle and its ends, which lie aside by how it is turned to the way.
        ends = CIRCLES * self.spread[other][:, None]
        reach = along + ends * (aim[0, :, None] * cosine + aim[1, :, None] * sine)
        across = across + ends * (aim[1, :, None] * cosine - aim[0, :, None] * sine)
        hit = (np.abs(across) < room[:, None]) & (np.abs(reach) < AROUND)
        nearest = np.where(hit, LOOK + reach, FAR).min((0, 2))
        speed = motion[other, VX] * aim[0] + motion[other, VY] * aim[1]
        first = np.abs(LOOK - nearest[:, None]).argmin(1)
        rows = np.arange(len(car))
        same = aim[0] * cosine[rows, first] + aim[1] * sine[rows, first]
        gap = np.where(nearest < FAR, nearest - self.other_width[other] - self.half[car], FAR)
        order = np.argsort(-gap, kind="stable")  # the nearest is written last
        self.gap[car[order]], self.leader[car[order]] = gap[order], np.maximum(speed * same, 0.0)[order]

    def _near(self, mine: Floats, others: Floats, aims: Floats) -> tuple[Ints, Ints]:
        """Returns the pairs of a car and somebody else within its sight and not behind it."""
        dx, dy = others[:, X] - mine[:, X, None], others[:, Y] - mine[:, Y, None]
        sight = np.maximum(SIGHT, SECONDS * self.speed + 10.0)[:, None]
        cosine, sine = aims[:, self.solid_of, None]
        close = (dx * dx + dy * dy < sight * sight) & (dx * cosine + dy * sine > -6.0)
        close[self.other_car[self.is_car], self.is_car] = False
        car, other = np.nonzero(close)
        return car, other

    def _acceleration(self, left: Floats, entering: Flags) -> Floats:
        limit = self.lanes.speed
        wanted = limit[self.way] * self.eager
        following_speed = np.where(self.next >= 0, limit[self.next] * self.eager, FAR)
        wanted = np.minimum(wanted, following.approach(following_speed, left - 1.0))
        acceleration = following.free_road(self.speed, wanted)
        acceleration += following.interaction(self.speed, self.gap, self.leader)
        must_stop = (self.next < 0) | (entering & ~self.admitted)  # the end of the lane is as far as it may go
        line = np.where(must_stop, left - self.half + DRIVER.gap - 0.5, FAR)
        acceleration = np.minimum(acceleration, following.interaction(self.speed, line, 0.0) + DRIVER.acceleration)
        return np.maximum(acceleration, -DRIVER.hardest)

    # junctions

    def _ask(self, bodies: Bodies, left: Floats, entering: Flags, dt: float) -> None:
        """Decides who may enter a junction; who may keeps it until it is through, but for a light that turns red."""
        open_light = self._light_is_open(left)
        near = left - self.half < np.maximum(12.0, 4.0 + self.speed * self.speed / (2 * DRIVER.comfort) + self.speed)
        self.admitted &= ~entering | (near & open_light)
        asking = np.flatnonzero(entering & near & open_light & ~self.admitted)
        if len(asking):
            asking = asking[self._is_let_by(asking)]
        self.waited[~entering] = 0.0
        if not len(asking):
            return
        self.waited[asking] += dt * (self.speed[asking] < STANDING)
        inside = [(int(way), self._extra(number, way)) for number, way in self._taken(entering)]
        candidates = [
            Candidate(number, way, float(left[number]), float(self.waited[number]), self._extra(number, way))
            for number, way in zip(asking.tolist(), self.next[asking].tolist(), strict=True)
            if self._has_room(number)
        ]
        if not candidates:
            return
        users = bodies.motion[self.users]
        soon = users[:, None, :2] + SOON[:, None] * users[:, None, VX : VY + 1]
        self.admitted[self.junctions.admitted(candidates, inside, soon.reshape(-1, 2))] = True

    def _light_is_open(self, left: Floats) -> npt.NDArray[np.bool_]:
        light = self.lights.of_way[self.way]
        if not len(self.lights):
            return np.ones(len(self), bool)
        colour = self.lights.colours[light]
        cannot_stop = left - self.half < self.speed * self.speed / (2 * DRIVER.hardest * 0.7)
        is_open = (colour == Colour.GREEN) | (colour >= Colour.OFF) | ((colour == Colour.YELLOW) & cannot_stop)
        return np.asarray((light < 0) | is_open | (self.admitted & cannot_stop))

    def _taken(self, entering: Flags) -> list[tuple[int, int]]:
        """Return the cars in junctions and those that may enter one, each with its way there."""
        crossing = self.lanes.crossing[self.way]
        cars = np.concatenate([np.flatnonzero(crossing), np.flatnonzero(entering & self.admitted)])
        ways = np.where(crossing, self.way, self.next)
        return list(zip(cars.tolist(), ways[cars].tolist(), strict=True))

    def _extra(self, number: int, way: int) -> float:
        return self.junctions.extra(way, float(self.half[number]), float(self.width[number]))

    def _is_let_by(self, cars: Ints) -> Flags:
        """Return of cars whether all that are ahead on the same lane may enter the junction.

        A car that is admitted past one that waits keeps the ways that cross its own from that one, and never moves itself.
        """
        held = np.where(self.admitted, -1.0, self.s)
        return np.asarray((held <= self.s[cars, None])[:, :] | (self.way != self.way[cars, None])).all(1)

    def _has_room(self, number: int) -> bool:
        """Whether a car finds a place behind the junction, so that it does not stand in it."""
        way = self.after[number]
        if way < 0:
            return True
        there = self.way == way
        tail = self.s[there] - self.half[there]
        slow = self.speed[there] < 2.0
        return not bool((tail[slow] < 2 * self.half[number] + DRIVER.gap).any())

    # lanes

    def _change_lanes(self, dt: float) -> None:
        """Lets one car a step look for a better lane, and all whose lane ends."""
        self.turn = turn = (self.turn + 1) % len(self)
        for number in np.flatnonzero(self.lanes.ends[self.way]):
            self._try(int(number), self.lanes.ways[self.way[number]].left, must=True)
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
        """Changes to a lane beside, if there is room in it; returns whether it did."""
        if side < 0 or self.lanes.ways[side].closes:
            return False
        lanes, way = self.lanes, self.way[number]
        s = float(self.s[number] * lanes.length[side] / lanes.length[way])
        if not must and lanes.length[side] - s < lane_changes.ROOM:
            return False
        there = (self.way == side) & (np.arange(len(self)) != number)
        others_s, others_speed, half = self.s[there], self.speed[there], self.half[there]
        for before in lanes.predecessors[side]:  # who comes from the lane behind
            coming = self.way == before
            others_s = np.append(others_s, self.s[coming] - lanes.length[before])
            others_speed, half = np.append(others_speed, self.speed[coming]), np.append(half, self.half[coming])
        if not self._users_leave_room(side, s) or not lane_changes.is_free(
            s, float(self.speed[number]), others_s, others_speed, half + self.half[number]
        ):
            return False
        here, beside = (lanes.poses(np.array([w]), np.array([p]))[0] for w, p in ((way, self.s[number]), (side, s)))
        right = (here[0] - beside[0]) * -math.sin(beside[2]) + (here[1] - beside[1]) * math.cos(beside[2])
        self.aside[number] += right
        self.way[number], self.s[number], self.next[number], self.after[number] = side, s, -1, -1
        self._plan(number)
        return True

    def _users_leave_room(self, side: int, s: float) -> bool:
        """Whether no client's car is near a place of a lane."""
        users = self.user_places
        if not len(users):
            return True
        place = self.lanes.poses(np.array([side]), np.array([s]))[0]
        return bool((np.hypot(users[:, 0] - place[0], users[:, 1] - place[1]) > 12.0).all())

    # what is seen of them

    def _write(self, bodies: Bodies, acceleration: Floats, dt: float) -> None:
        """Writes poses, velocities and pedals."""
        rows = rows_of(self.actors) if len(self.rows) != len(self) else self.rows
        poses = self.lanes.poses(self.way, self.s)
        x = poses[:, 0] - self.aside * np.sin(poses[:, 2])
        y = poses[:, 1] + self.aside * np.cos(poses[:, 2])
        heading = poses[:, 2]
        if self.aside.any():
            lean = np.sign(self.aside) * LATERAL / np.maximum(self.speed, 3.0)
            heading = heading - np.where(np.abs(self.aside) > 0.05, lean, 0.0)
        block = bodies.motion[rows]
        yaw = (np.degrees(heading) + 180.0) % 360.0 - 180.0
        block[:, WZ] = ((yaw - block[:, YAW] + 180.0) % 360.0 - 180.0) / dt
        block[:, X], block[:, Y], block[:, YAW] = x, y, yaw
        vx, vy = self.speed * np.cos(heading), self.speed * np.sin(heading)
        block[:, AX], block[:, AY] = (vx - block[:, VX]) / dt, (vy - block[:, VY]) / dt
        block[:, VX], block[:, VY] = vx, vy
        bodies.motion[rows] = block
        pedals = np.zeros((len(self), 3), np.float32)
        pedals[:, 0] = np.minimum(np.maximum(acceleration / DRIVER.acceleration, 0.0), 1.0)
        pedals[:, 2] = np.minimum(np.maximum(-acceleration / DRIVER.hardest, 0.0), 1.0)
        bodies.records["pedals"][rows] = pedals
