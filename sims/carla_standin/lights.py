"""Traffic lights: the controllers of a junction are green in turn, separated by yellow and a time of red for all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from carla_standin.actors import Actor, Bodies, Box
from carla_standin.errors import Refused
from carla_standin.layouts import Tag, TrafficLightState
from carla_standin.maps.curves import Floats
from carla_standin.maps.grid import LIGHT
from carla_standin.maps.ground import lane_area, stop_line
from carla_standin.maps.roads import Road, Signal
from carla_standin.maps.town import Town
from carla_standin.poses import Pose
from carla_standin.sensors.scene import Boxes

TIMES = (10.0, 3.0, 2.0)
"""Duration [s] of green, of yellow, and of red for all before the next group gets green."""
SHOWN = np.array([(40, 40, 230), (40, 210, 240), (60, 200, 60), (60, 60, 60), (60, 60, 60)], np.uint8)
"""Colour of a lamp in pictures (blue, green, red) for each state of a traffic light."""
GREY = (90, 90, 90)
Size = tuple[float, float, float, float]
"""Size of a box [m]: half length, half width, bottom, top."""
REACH = 12.0
"""Length [m] of the area before a stop line in which a light affects a car.

A car that begins to brake there from 50 km/h stops before the line.
"""
ORDER = TrafficLightState.GREEN, TrafficLightState.YELLOW, TrafficLightState.RED
"""Colours of a cycle, in the order of TIMES."""
NEXT = {TrafficLightState.GREEN: TrafficLightState.YELLOW, TrafficLightState.YELLOW: TrafficLightState.RED}


@dataclass(frozen=True)
class Place:
    """Position of a traffic light, and the lanes at whose end it must be obeyed."""

    signal: Signal
    road: Road
    """Road beside which the signal stands."""
    stops: tuple[tuple[Road, int], ...]
    """Roads and lanes at whose end the signal must be obeyed; they need not be where the signal stands."""

    @property
    def is_here(self) -> bool:
        """True if the signal must be obeyed by the lanes at which it stands."""
        return all(road is self.road for road, _ in self.stops)

    @property
    def pose(self) -> Pose:
        """Pose of the pole. Its yaw faces along the direction of travel of the traffic that the light is for."""
        x, y, heading = (
            float(value[0]) for value in self.road.beside(*(np.array([v]) for v in (self.signal.s, self.signal.t)))
        )
        is_along = self.signal.orientation == "+"
        if not self.is_here:
            road, lane = self.stops[0]
            is_along = lane < 0
            heading = float(road.at(np.array([road.length if is_along else 0.0]))[2][0])
        yaw = -math.degrees(heading) + (0.0 if is_along else 180.0)
        return [[x, -y, 0.0], [0.0, math.remainder(yaw, 360.0), 0.0]]

    @property
    def reach(self) -> float:
        """Greatest length [m] of the areas before the stop lines in which the signal counts."""
        return REACH

    def areas(self) -> list[Floats]:
        """Return the outline (n, 2) [m] of the area on each lane in which the signal counts, simulator's frame."""
        return [lane_area(road, lane, *self._stations(road, lane)) for road, lane in self.stops]

    def lines(self) -> list[Floats]:
        """Return the ends (2, 2) [m] of each lane's stop line, in the simulator's frame."""
        return [stop_line(road, lane, "+" if lane < 0 else "-") for road, lane in self.stops]

    def _stations(self, road: Road, lane: int) -> tuple[float, float]:
        """Return begin and end [m] along the road of the area on a lane in which the signal counts."""
        reach = min(self.reach, road.length)
        return (road.length - reach, road.length) if lane < 0 else (0.0, reach)

    def box(self) -> Box:
        """Return the area as a box in the frame of the pose: before it and to the left if it stands at its lanes."""
        if not self.is_here:
            return self._box_elsewhere()
        edges = [float(edge[0]) for _, lane in self.stops for edge in self.road.edges(lane, np.array([self.signal.s]))]
        near, far = (abs(abs(self.signal.t) - abs(edge)) for edge in (max(edges, key=abs), min(edges, key=abs)))
        reach = min(self.reach, self.road.length)
        return Box((-reach / 2, -(near + far) / 2, 1.0), (reach / 2, (far - near) / 2, 1.0))

    def _box_elsewhere(self) -> Box:
        (x, y, _), (_, yaw, _) = self.pose
        turn = math.radians(yaw)
        offset = np.concatenate(self.areas()) - (x, y)
        own = offset @ np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        low, high = own.min(0), own.max(0)
        middle, half = (low + high) / 2, (high - low) / 2
        return Box((float(middle[0]), float(middle[1]), 1.0), (float(half[0]), float(half[1]), 1.0))

    def appear(self, bodies: Bodies, number: int, type_id: str, tag: Tag) -> Actor:
        """Add the signal's actor, with the id `number`, and return it."""
        actor = Actor(number, type_id, {}, [0, type_id, [["role_name", 4, ""]]], self.box(), tag)
        bodies.add(actor, self.pose)
        bodies.records["sign"][-1] = str(self.signal.id).encode()
        return actor


@dataclass
class Cycle:
    """Cycle of the lights of one junction: which are green, and in which order."""

    groups: list[list[int]]
    """Numbers of lights that are green together."""
    turn: int = 0
    colour: TrafficLightState = TrafficLightState.GREEN
    lights: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lights = [light for group in self.groups for light in group]

    def advance(self) -> None:
        """Switch the lights to the next colour: green, yellow, red. After red, the next group of lights gets green."""
        if self.colour in NEXT:
            self.colour = NEXT[self.colour]
        else:
            self.turn, self.colour = (self.turn + 1) % len(self.groups), TrafficLightState.GREEN


class Lights:
    """All traffic lights of a map. Light i has the number i + 1 in the ground's picture of where lights count."""

    def __init__(self, town: Town) -> None:
        self.places = places(town)
        number = {place.signal.id: index for index, place in enumerate(self.places)}
        controllers = {controller.id: controller for controller in town.road_map.controllers}
        self.cycles = [
            Cycle(
                [group for c in junction.controllers if (group := [number[s] for s in controllers[c].signals if s in number])]
            )
            for junction in town.road_map.junctions
            if any(signal in number for c in junction.controllers for signal in controllers[c].signals)
        ]
        controlled = {light for cycle in self.cycles for light in cycle.lights}
        self.cycles += [Cycle([[light]]) for light in number.values() if light not in controlled]
        count = len(self.places)
        self.colours = np.full(count, TrafficLightState.RED, np.uint8)
        self.frozen = np.zeros(count, bool)
        self.times = np.tile(np.array(TIMES), (count, 1))
        self.actors: list[Actor] = []
        self.ids = np.zeros(count, np.uint32)
        self.of_way = np.full(len(town.lanes.ways), -1)
        """Way -> the light at its end, or -1."""
        for index, place in enumerate(self.places):
            self.of_way[[town.lanes.index[road.id, lane] for road, lane in place.stops]] = index
        self.cycle_of = np.zeros(count, np.intp)
        for index, cycle in enumerate(self.cycles):
            self.cycle_of[cycle.lights] = index
            self._show(cycle)
        self._open: tuple[bytes | None, npt.NDArray[np.bool_]] = None, np.zeros(0, bool)
        """Colours at the newest call of `open_ways`, and its result."""
        self.elapsed = np.zeros(len(self.cycles))
        """[s] since each cycle's colour last changed."""
        self._note()

    def __len__(self) -> int:
        return len(self.places)

    def appear(self, bodies: Bodies, first: int) -> int:
        """Add the lights' actors with ids from `first` on; return the next id."""
        for number, place in enumerate(self.places, first):
            self.actors.append(place.appear(bodies, number, "traffic.traffic_light", Tag.TRAFFIC_LIGHT))
        self.ids = np.array([actor.id for actor in self.actors], np.uint32)
        return first + len(self.places)

    def step(self, dt: float) -> None:
        """Advance the cycles of all junctions by `dt` [s]."""
        if not self.actors:
            return
        self.elapsed += dt * self.runs
        over = self.elapsed >= self.limits
        if over.any():
            for number in np.flatnonzero(over & self.runs):
                self.elapsed[number] = 0.0
                self.cycles[number].advance()
                self._show(self.cycles[number])
            self._note()

    def write(self, bodies: Bodies) -> None:
        """Write the lights' times, colours and frozen states into their records for snapshots."""
        if not self.actors:
            return
        first = self.actors[0].row  # they were the first to appear, one after the other
        records = bodies.records[first : first + len(self)]
        times = records["times"]
        times[:, :3], times[:, 3] = self.times, self.elapsed[self.cycle_of]
        records["frozen"], records["colour"] = self.frozen, self.colours

    def open_ways(self) -> npt.NDArray[np.bool_]:
        """Return whether each way is open, that is, has no light at its end or one that is not red."""
        colours = self.colours.tobytes()
        if colours != self._open[0]:
            is_open = np.append(self.colours != TrafficLightState.RED, True)  # the last is that of ways without a light
            self._open = colours, np.asarray(is_open[self.of_way])
        return self._open[1]

    def _note(self) -> None:
        """Update the running cycles and the times [s] at which their colours end."""
        self.runs = np.array([not self.frozen[cycle.lights[0]] for cycle in self.cycles], bool)
        ends = [self.times[cycle.groups[cycle.turn][0], ORDER.index(cycle.colour)] for cycle in self.cycles]
        self.limits = np.array(ends) - 1e-9

    def _show(self, cycle: Cycle) -> None:
        self.colours[cycle.lights] = TrafficLightState.RED
        self.colours[cycle.groups[cycle.turn]] = cycle.colour

    # calls of clients

    def number(self, actor: Actor) -> int:
        """Return the index of a light's actor among the map's lights; raises Refused for another actor."""
        if actor not in self.actors:
            raise Refused(f"actor {actor.id} ({actor.type_id}) is no traffic light")
        return self.actors.index(actor)

    def group(self, actor: Actor) -> list[int]:
        """Return the ids of all traffic lights at the junction of a light, that light included."""
        return [int(self.ids[light]) for light in self._cycle(actor).lights]

    def _cycle(self, actor: Actor) -> Cycle:
        number = self.number(actor)
        return next(cycle for cycle in self.cycles if number in cycle.lights)

    def set_colour(self, actor: Actor, colour: int) -> None:
        """Set the colour of one light; the cycle of its junction changes it again."""
        self.colours[self.number(actor)] = TrafficLightState(colour)

    def set_time(self, actor: Actor, which: int, seconds: float) -> None:
        """Set the time [s] of green (0), yellow (1) or red (2) of a light."""
        self.times[self.number(actor), which] = max(seconds, 0.0)
        self._note()

    def freeze(self, frozen: bool, actor: Actor | None = None) -> None:
        """Stop the lights' cycle at one junction, or at all, or let it run again."""
        lights = slice(None) if actor is None else self._cycle(actor).lights
        self.frozen[lights] = frozen
        self._note()

    def reset(self, actor: Actor | None = None) -> None:
        """Restart the lights' cycle at one junction, or at all, with green."""
        for number, cycle in enumerate(self.cycles):
            if actor is None or self.number(actor) in cycle.lights:
                cycle.turn, cycle.colour, self.elapsed[number] = 0, TrafficLightState.GREEN, 0.0
                self._show(cycle)
        self._note()

    # boxes for cameras

    def boxes(self) -> Boxes:
        """Return the boxes of all traffic lights: a pole and a head for each."""
        return pole_boxes(self.places, (0.1, 0.1, 0.0, 3.0), (0.25, 0.3, 3.0, 4.0), Tag.TRAFFIC_LIGHT, GREY)

    def paint(self) -> npt.NDArray[np.uint8]:
        """Return the present colour of each head (lamp housing), (n, 3) uint8, as blue, green and red."""
        return SHOWN[self.colours]


def pole_boxes(places: Sequence[Place], pole: Size, head: Size, tag: Tag, colour: tuple[int, int, int]) -> Boxes:
    """Return the boxes of all poles, then those of all heads (lamp housings or sign plates).

    Args:
        places: Places of the poles.
        pole: Size of each pole.
        head: Size of each head.
        tag: Semantic class of the heads.
        colour: Blue, green and red of the heads.
    """
    count = len(places)
    poses = np.array([[*place.pose[0][:2], math.radians(place.pose[1][1])] for place in places]).reshape(-1, 3)
    numbers: Floats = np.concatenate([np.tile(poses, (2, 1)), np.repeat([pole, head], count, axis=0)], axis=1)
    tags = np.repeat(np.array([Tag.POLE, tag], np.uint8), count)
    colours = np.repeat(np.array([GREY, colour], np.uint8), count, axis=0)
    return Boxes(numbers, tags, colours, np.zeros(2 * count, np.int64))


def places(town: Town) -> list[Place]:
    """Return position and lanes of each traffic light of a map."""
    return [Place(*found) for found in stopping(town, {LIGHT})]


def stopping(town: Town, kinds: Collection[str]) -> list[tuple[Signal, Road, tuple[tuple[Road, int], ...]]]:
    """Return the signals that end a lane on the map.

    Args:
        town: The map.
        kinds: CARLA's types of the wanted signals, such as a light or a stop sign.

    Returns:
        For each signal: itself, its road, and the roads and lanes at whose end vehicles must obey it.
    """
    found = []
    for road in town.road_map.roads:
        for signal in road.signals:
            if signal.type in kinds:
                ways = [town.lanes.ways[number] for number in town.signal_ways.of(signal.id)]
                stops = tuple((town.road_map.by_id[way.road], way.lane) for way in ways)
                if stops:
                    found.append((signal, road, stops))
    return found
