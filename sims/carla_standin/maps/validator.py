"""Validate a road map before a client gets it: a link to a missing lane is a segmentation fault in `carla.Map`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from carla_standin.errors import InvalidMap
from carla_standin.maps.curves import Cubic
from carla_standin.maps.roads import Connection, Junction, Link, Road, RoadMap
from carla_standin.maps.sections import NARROWEST, is_sound

GAP, TURN = 0.05, 0.02
"""[m], [rad] Tolerance between linked ends: editors of maps round."""
LOOSE_GAP, LOOSE_TURN = 1.0, 0.5
"""Tolerance of cubic polynomials through junctions: CARLA's converter of OpenStreetMap misses ends of tight turns."""
SHORTEST, LEAST = 1e-3, 1e-6
"""Shortest piece [m] of a road that has several pieces, and shortest piece of a road that has one."""
WIGGLE = 0.01
"""[m] Tolerance of negative widths: polynomials that end at 0 miss it by rounding."""
BROADEST = 200.0
"""Largest size [m] of a crosswalk, and largest distance [m] of its corners from its place and from the road's reference
line."""
SHOWN = 5


def require_valid(road_map: RoadMap) -> None:
    """Check a road map; raise InvalidMap with its first problems if it has any."""
    found = list(problems(road_map))
    if found:
        listing = "".join(f"\n    - {problem}" for problem in found[:SHOWN])
        more = f"\n    and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise InvalidMap(f"The map {road_map.name!r} is broken: {len(found)} problem(s).{listing}{more}", fix="mend the map")


def problems(road_map: RoadMap) -> Iterator[str]:
    """Yield all problems in words; those of links only if all parts are valid."""
    parts = list(_of_parts(road_map))
    yield from parts
    if not parts:
        for road in road_map.roads:
            yield from _of_links(road_map, road)
            yield from _of_signals(road)
        for junction in road_map.junctions:
            yield from _of_junction(road_map, junction)
        yield from _of_controllers(road_map)


def _of_parts(road_map: RoadMap) -> Iterator[str]:
    if not any(lane.kind == "driving" for road in road_map.roads for lane in road.lanes):
        yield "there is no driving lane"
    signals = [signal.id for road in road_map.roads for signal in road.signals]
    kinds = {
        "road": [road.id for road in road_map.roads],
        "junction": [junction.id for junction in road_map.junctions],
        "signal": signals,
        "controller": [controller.id for controller in road_map.controllers],
    }
    for kind, ids in kinds.items():
        if len(set(ids)) < len(ids):
            yield f"two {kind}s have the same id"
        if any(number < 0 for number in ids):
            yield f"a {kind} has a negative id"
    for road in road_map.roads:
        yield from _of_road(road)


def _of_road(road: Road) -> Iterator[str]:
    where = f"road {road.label}"
    if not road.pieces or any(piece.length <= LEAST for piece in road.pieces):
        yield f"{where} has no length, or a piece of none"
        return
    if not 0 < road.speed < 150:
        yield f"{where} has a speed limit of {road.speed} m/s"
    for before, after in zip(road.pieces, road.pieces[1:], strict=False):
        x, y, heading = (float(value[0]) for value in before.at(np.array([before.length])))
        if math.hypot(after.x - x, after.y - y) > GAP or _turned(heading, float(after.at(np.zeros(1))[2][0])) > TURN:
            yield f"{where} has a gap between two pieces"
    for side in (1, -1):
        ids = sorted(abs(lane.id) for lane in road.lanes if lane.id * side > 0)
        if ids != list(range(1, len(ids) + 1)):
            yield f"{where} has lanes {[side * number for number in ids]} on one side; they count from 1 without a gap"
    if any(lane.id == 0 for lane in road.lanes):
        yield f"{where} has a lane 0 besides the centre"
    stations = np.linspace(0, road.length, 33)
    for lane in road.lanes:
        width = lane.width_at(stations)
        narrowest = NARROWEST if lane.kind == "driving" else -WIGGLE
        if width.min() < -WIGGLE or width.max() > 20 or width.max() < narrowest:
            yield f"{where} lane {lane.id} is {width.min():g} to {width.max():g} m wide"
        elif lane.kind == "driving" and _folds(road, lane.id):
            yield f"{where} lane {lane.id} folds over itself on the inner side of a bend"


def _folds(road: Road, lane: int) -> bool:
    """Return whether a lane folds over in a bend: its middle lies beyond the bend's centre."""
    begin = -road.begin
    for piece in road.pieces:
        first, begin = begin, begin + piece.length
        stations = np.linspace(max(first, 0.0), min(begin, road.length), 9)
        if stations[0] < stations[-1]:
            left, right = road.edges(lane, stations)
            middle = (left + right) / 2
            if max(float((bend * middle).max()) for bend in piece.bends) > 1:
                return True
    return False


def _turned(first: float, second: float) -> float:
    return abs(math.remainder(first - second, 2 * math.pi))


def _of_links(road_map: RoadMap, road: Road) -> Iterator[str]:
    junctions = {junction.id for junction in road_map.junctions}
    if road.junction != -1 and road.junction not in junctions:
        yield f"road {road.label} belongs to junction {road.junction}, which is not there"
    for end, link in (("start", road.predecessor), ("end", road.successor)):
        if link is None:
            yield from _of_loose_end(road, end)
        elif link.kind == "junction":
            if link.id not in junctions:
                yield f"the {end} of road {road.label} leads to junction {link.id}, which is not there"
            yield from _of_loose_end(road, end)
        else:
            yield from _of_road_link(road_map, road, end, link)


def _of_loose_end(road: Road, end: str) -> Iterator[str]:
    """Yield the faults at an end of a road that no road follows: links of its lanes."""
    for lane in road.lanes:
        target = lane.predecessor if end == "start" else lane.successor
        if target is not None:
            yield f"road {road.label} lane {lane.id} names lane {target} at its {end}, where no road follows"


def _of_road_link(road_map: RoadMap, road: Road, end: str, link: Link) -> Iterator[str]:
    where = f"the {end} of road {road.label}"
    other = road_map.by_id.get(link.id)
    if link.kind != "road" or other is None or link.contact not in ("start", "end"):
        yield f"{where} leads to {link.kind} {link.id} {link.contact}, which is not there"
        return
    back = other.predecessor if link.contact == "start" else other.successor
    known = back is not None and (
        (back.kind == "road" and back.id == road.id and back.contact == end)
        or (back.kind == "junction" and back.id == road.junction)
    )
    if not known:
        yield f"{where} leads to road {other.label}, which does not lead back"
    for lane in road.lanes:
        target = lane.predecessor if end == "start" else lane.successor
        if target is not None:
            yield from _of_lane_link(road, lane.id, end, other, target, link.contact)


def _of_lane_link(road: Road, lane: int, end: str, other: Road, target: int, contact: str) -> Iterator[str]:
    where = f"road {road.label} lane {lane}"
    here, there = road.lane(lane), other.lane(target)
    if here is None or there is None:
        yield f"{where} leads to lane {target} of road {other.label}, which is not there"
        return
    if not is_sound(road, lane, end, other, target, contact):
        yield f"{where} leads to lane {target} of road {other.label}, which is driven the other way"
        return
    (x, y, heading), (other_x, other_y, other_heading) = _end_of(road, lane, end), _end_of(other, target, contact)
    if "driving" not in (here.kind, there.kind):
        return
    turned = _turned(heading, other_heading + (math.pi if end == contact else 0.0))
    most_gap, most_turn = (LOOSE_GAP, LOOSE_TURN) if _is_converted(road) or _is_converted(other) else (GAP, TURN)
    if math.hypot(x - other_x, y - other_y) > most_gap or turned > most_turn:
        gap = math.hypot(x - other_x, y - other_y)
        yield f"{where} and lane {target} of road {other.label} do not meet: {gap:.3g} m and {turned:.3g} rad apart"


def _is_converted(road: Road) -> bool:
    return road.junction != -1 and any(isinstance(piece.shape, Cubic) for piece in road.pieces)


def _end_of(road: Road, lane: int, end: str) -> tuple[float, float, float]:
    """Return x, y [m] of a lane's centre at an end of its road, and the heading [rad] of the reference line."""
    s = np.array([0.0 if end == "start" else road.length])
    inner, outer = road.edges(lane, s)
    x, y, heading = road.beside(s, (inner + outer) / 2)
    return float(x[0]), float(y[0]), float(heading[0])


def _of_junction(road_map: RoadMap, junction: Junction) -> Iterator[str]:
    if not junction.connections:
        yield f"junction {junction.id} connects nothing"
    controllers = {controller.id for controller in road_map.controllers}
    for number in junction.controllers:
        if number not in controllers:
            yield f"junction {junction.id} names controller {number}, which is not there"
    if len({way.id for way in junction.connections}) < len(junction.connections):
        yield f"two connections of junction {junction.id} have the same id"
    for way in junction.connections:
        yield from _of_connection(road_map, junction, way)


def _of_connection(road_map: RoadMap, junction: Junction, way: Connection) -> Iterator[str]:
    where = f"connection {way.id} of junction {junction.id}"
    incoming, connecting = road_map.by_id.get(way.incoming), road_map.by_id.get(way.connecting)
    if incoming is None or connecting is None or way.contact not in ("start", "end"):
        yield f"{where} goes from road {way.incoming} to road {way.connecting} {way.contact}, which is not there"
        return
    link = connecting.predecessor if way.contact == "start" else connecting.successor
    if connecting.junction != junction.id:
        yield f"{where} uses road {way.connecting}, which is not of this junction"
    if link is None or link.kind != "road" or link.id != way.incoming or link.contact is None:
        yield f"{where} uses road {way.connecting}, which does not lead back to road {way.incoming}"
        return
    entry = incoming.predecessor if link.contact == "start" else incoming.successor
    if entry is None or entry.kind != "junction" or entry.id != junction.id:
        yield f"{where} comes from road {way.incoming}, which does not lead to this junction"
    if not way.links:
        yield f"{where} links no lanes"
    for start, end in way.links:
        if incoming.lane(start) is None:
            yield f"{where} links lane {start} of road {way.incoming}, which is not there"
        else:
            yield from _of_lane_link(incoming, start, link.contact, connecting, end, way.contact)


def _of_signals(road: Road) -> Iterator[str]:
    for signal in road.signals:
        if not 0 <= signal.s <= road.length:
            yield f"signal {signal.id} stands at {signal.s} m of road {road.label}, which is {road.length} m long"
        if signal.orientation not in ("+", "-", "none"):
            yield f"signal {signal.id} has orientation {signal.orientation!r}"
        if any(road.lane(number) is None for number in signal.lanes if number):
            yield f"signal {signal.id} counts for lanes {signal.lanes} of road {road.label}, which are not there"
    for box in road.buildings:
        if not 0 <= box.s <= road.length or min(box.length, box.width, box.height) <= 0:
            yield f"building {box.id} of road {road.label} has no size or no place"
    for crosswalk in road.crosswalks:
        if not 0 <= crosswalk.s <= road.length:
            yield f"a crosswalk lies at {crosswalk.s} m of road {road.label}, which is {road.length} m long"
        if min(crosswalk.size) <= 0 or max(*crosswalk.size, abs(crosswalk.t), *map(abs, sum(crosswalk.corners, ()))) > BROADEST:
            yield f"a crosswalk of road {road.label} is {crosswalk.size} m large, or that far from it"


def _of_controllers(road_map: RoadMap) -> Iterator[str]:
    signals = {signal.id for road in road_map.roads for signal in road.signals}
    for controller in road_map.controllers:
        missing = [number for number in controller.signals if number not in signals]
        if missing or not controller.signals:
            yield f"controller {controller.id} has signals {missing} that are not there, or none"
