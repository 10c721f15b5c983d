"""Lane sections of the roads of a file, each a road of its own: their ids, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from carla_standin.maps.roads import Connection, Junction, Lane, Link, Road, RoadMap

NARROWEST = 0.1
"""Least width [m], at its widest place, of a lane that is driven on."""
SLIVER = 1e-3
"""Lane sections shorter than this [m] are left out: editors leave such remainders at the end of another section."""


def without_slivers(sections: list[Road]) -> list[Road]:
    """Return the sections of a road without those that have no length; links go on through them."""
    kept = list(sections)
    while len(kept) > 1:
        short = next((index for index, part in enumerate(kept) if part.length < SLIVER), None)
        if short is None:
            break
        gone = kept.pop(short)
        if short:
            lanes = tuple(
                replace(lane, successor=_through(gone, lane.successor, "successor")) for lane in kept[short - 1].lanes
            )
            kept[short - 1] = replace(kept[short - 1], lanes=lanes, extent=kept[short - 1].length + gone.length)
        if short < len(kept):
            after = kept[short]
            lanes = tuple(replace(lane, predecessor=_through(gone, lane.predecessor, "predecessor")) for lane in after.lanes)
            kept[short] = replace(after, lanes=lanes)
            if not short:
                kept[0] = replace(kept[0], begin=gone.begin, extent=after.length + gone.length)
    return kept


def _through(section: Road, number: int | None, end: str) -> int | None:
    """Return the lane to which lane `number` is linked at an end of a section; None if there is none."""
    lane = None if number is None else section.lane(number)
    return None if lane is None else getattr(lane, end)


def driven_links(road_map: RoadMap) -> RoadMap:
    """Return a map without broken links from and to lanes that nobody drives on.

    Editors connect shoulders and pavements with anything, and clients follow links of driving lanes alone.
    """
    roads = []
    for road in road_map.roads:
        lanes = []
        for lane in road.lanes:
            before = lane.predecessor if _is_kept(road_map, road, lane, "start") else None
            after = lane.successor if _is_kept(road_map, road, lane, "end") else None
            lanes.append(replace(lane, predecessor=before, successor=after))
        roads.append(replace(road, lanes=tuple(lanes)))
    junctions = []
    for junction in road_map.junctions:
        ways = [replace(way, links=tuple(_kept_links(road_map, way))) for way in junction.connections]
        kept = [way for way, old in zip(ways, junction.connections, strict=True) if way.links or not old.links]
        junctions.append(replace(junction, connections=tuple(kept)))
    return replace(road_map, roads=tuple(roads), junctions=tuple(junctions))


def _is_kept(road_map: RoadMap, road: Road, lane: Lane, end: str) -> bool:
    """Return whether a lane's link at an end may stay: it is sound, or one that the validator judges."""
    link, target = (road.predecessor, lane.predecessor) if end == "start" else (road.successor, lane.successor)
    if target is None:
        return True
    if link is None or link.kind != "road":
        return lane.kind == "driving"
    other = road_map.by_id.get(link.id)
    if other is None or _are_driven(road, lane.id, other, target):
        return True
    return is_sound(road, lane.id, end, other, target, link.contact)


def _kept_links(road_map: RoadMap, way: Connection) -> Iterator[tuple[int, int]]:
    incoming, connecting = road_map.by_id.get(way.incoming), road_map.by_id.get(way.connecting)
    for start, end in way.links:
        back = None if connecting is None else connecting.predecessor if way.contact == "start" else connecting.successor
        if (
            incoming is None
            or connecting is None
            or back is None
            or _are_driven(incoming, start, connecting, end)
            or is_sound(incoming, start, back.contact, connecting, end, way.contact)
        ):
            yield start, end


def _are_driven(road: Road, lane: int, other: Road, target: int) -> bool:
    """Return whether both lanes are for driving; a lane that does not exist counts as one."""
    ends = road.lane(lane), other.lane(target)
    return all(found is None or found.kind == "driving" for found in ends)


def is_sound(road: Road, lane: int, end: str | None, other: Road, target: int, contact: str | None) -> bool:
    """Return whether two linked lanes are there and are driven the same way.

    They lie along the reference line at one end and against it at the other, or the numbers change their sign.
    """
    if road.lane(lane) is None or other.lane(target) is None:
        return False
    return ((lane > 0) == (target > 0)) != (end == contact)


class Sections:
    """The sections of all roads: their ids, and the links between them."""

    def __init__(self, roads: list[list[Road]]) -> None:
        self.roads = roads
        self.of_road: list[list[int]] = []
        """Ids of the sections of each road; the first keeps the road's."""
        free = max((sections[0].id for sections in roads), default=0) + 1
        for sections in roads:
            self.of_road.append([sections[0].id, *range(free, free + len(sections) - 1)])
            free += len(sections) - 1
        self.ids = {ids[0]: ids for ids in reversed(self.of_road)}

    def linked(self) -> Iterator[Road]:
        """Yield all sections, each linked to the one before and after it."""
        for sections, ids in zip(self.roads, self.of_road, strict=True):
            for index, section in enumerate(sections):
                before = self._end(section.predecessor) if index == 0 else Link("road", ids[index - 1], "end")
                after = self._end(section.successor) if index == len(ids) - 1 else Link("road", ids[index + 1], "start")
                source = section.id if len(ids) > 1 else None
                yield replace(section, id=ids[index], source=source, predecessor=before, successor=after)

    def _end(self, link: Link | None) -> Link | None:
        if link is None or link.kind != "road" or link.id not in self.ids:
            return link
        return replace(link, id=self.ids[link.id][-1 if link.contact == "end" else 0])

    def joined(self, junction: Junction) -> Junction:
        """Return a junction whose connections name the sections that meet."""
        return replace(junction, connections=tuple(map(self._connection, junction.connections)))

    def _connection(self, way: Connection) -> Connection:
        contacts = {sections[0].id: (sections[0].predecessor, sections[-1].successor) for sections in self.roads}
        back = contacts.get(way.connecting, (None, None))[0 if way.contact == "start" else 1]
        incoming = Link("road", way.incoming, None if back is None else back.contact)
        connecting = Link("road", way.connecting, way.contact)
        numbers = [link.id for link in map(self._end, (incoming, connecting)) if link is not None]
        return replace(way, incoming=numbers[0], connecting=numbers[1])
