"""Write a road map as OpenDRIVE 1.4."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from carla_standin.maps.curves import Cubic, Spiral
from carla_standin.maps.roads import Crosswalk, Junction, Lane, Link, Polynomial, Reference, Road, RoadMap, Signal


def to_opendrive(road_map: RoadMap) -> str:
    """Return the text of the file; the same map gives the same text."""
    root = Element("OpenDRIVE")
    _header(root, road_map)
    numbers = {road.id: road.number for road in road_map.roads}
    for sections in _whole_roads(road_map):
        _road(root, sections, numbers)
    for controller in road_map.controllers:
        element = SubElement(root, "controller", id=str(controller.id), name=f"controller{controller.id}", sequence="0")
        for signal in controller.signals:
            SubElement(element, "control", signalId=str(signal), type="")
    for junction in road_map.junctions:
        _junction(root, junction, numbers)
    ElementTree.indent(root, "")
    return '<?xml version="1.0" standalone="yes"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _header(root: Element, road_map: RoadMap) -> None:
    header = SubElement(root, "header", revMajor="1", revMinor="4", name=road_map.name, version="1", vendor="robo-rl")
    reference = f"+proj=tmerc +lat_0={road_map.latitude!r} +lon_0={road_map.longitude!r} +k=1 +x_0=0 +y_0=0 +datum=WGS84"
    SubElement(header, "geoReference").text = reference + " +units=m +no_defs"


def _whole_roads(road_map: RoadMap) -> list[list[Road]]:
    """Return the sections of each road of the file, in their order."""
    found: dict[int, list[Road]] = {}
    for road in road_map.roads:
        found.setdefault(road.number, []).append(road)
    return [sorted(sections, key=lambda road: road.begin) for sections in found.values()]


def _road(root: Element, sections: list[Road], numbers: dict[int, int]) -> None:
    road, texts = sections[0], {"id": str(sections[0].number), "junction": str(sections[0].junction)}
    element = SubElement(root, "road", {"name": f"road {road.number}", "length": repr(road.whole)} | texts)
    link = SubElement(element, "link")
    for tag, target in (("predecessor", road.predecessor), ("successor", sections[-1].successor)):
        if target is not None:
            _link(link, tag, target, numbers)
    kind = SubElement(element, "type", s="0.0", type="town")
    SubElement(kind, "speed", max=repr(road.speed), unit="m/s")
    _plan(element, road)
    profile = SubElement(element, "elevationProfile")
    SubElement(profile, "elevation", s="0.0", a="0.0", b="0.0", c="0.0", d="0.0")
    SubElement(element, "lateralProfile")
    lanes = SubElement(element, "lanes")
    for offset in road.offsets:
        SubElement(lanes, "laneOffset", _numbers("s", offset))
    for section in sections:
        _lanes(lanes, section)
    objects, signals = SubElement(element, "objects"), SubElement(element, "signals")
    for section in sections:
        _objects(objects, section)
        for signal in section.signals:
            _signal(signals, replace(signal, s=signal.s + section.begin))
        for one in section.references:
            _reference(signals, one, section)


def _numbers(first: str, values: Polynomial) -> dict[str, str]:
    return dict(zip((first, *"abcd"), map(repr, map(float, values)), strict=True))


def _link(parent: Element, tag: str, target: Link, numbers: dict[int, int]) -> None:
    number = numbers[target.id] if target.kind == "road" else target.id
    element = SubElement(parent, tag, elementType=target.kind, elementId=str(number))
    if target.contact is not None:
        element.set("contactPoint", target.contact)


def _plan(element: Element, road: Road) -> None:
    view, s = SubElement(element, "planView"), 0.0
    for piece in road.pieces:
        numbers = {"s": s, "x": piece.x, "y": piece.y, "hdg": piece.heading, "length": piece.length}
        geometry = SubElement(view, "geometry", {key: repr(float(value)) for key, value in numbers.items()})
        if piece.shape is not None:
            _shape(geometry, piece.shape)
        elif piece.curvature:
            SubElement(geometry, "arc", curvature=repr(float(piece.curvature)))
        else:
            SubElement(geometry, "line")
        s += piece.length


def _shape(geometry: Element, shape: Spiral | Cubic) -> None:
    if isinstance(shape, Spiral):
        SubElement(geometry, "spiral", curvStart=repr(shape.start), curvEnd=repr(shape.end))
    elif shape.tag == "poly3":
        SubElement(geometry, "poly3", dict(zip("abcd", map(repr, shape.v), strict=True)))
    else:
        named = {f"{letter}U": repr(value) for letter, value in zip("abcd", shape.u, strict=True)}
        named |= {f"{letter}V": repr(value) for letter, value in zip("abcd", shape.v, strict=True)}
        SubElement(geometry, "paramPoly3", named | {"pRange": shape.scale})


def _lanes(lanes: Element, road: Road) -> None:
    section = SubElement(lanes, "laneSection", s=repr(float(road.begin)))
    left = sorted((lane for lane in road.lanes if lane.id > 0), key=lambda lane: -lane.id)
    right = sorted((lane for lane in road.lanes if lane.id < 0), key=lambda lane: -lane.id)
    if left:
        side = SubElement(section, "left")
        for lane in left:
            _lane(side, lane)
    centre = SubElement(SubElement(section, "center"), "lane", id="0", type="none", level="false")
    SubElement(centre, "link")
    for mark in ((0.0, road.centre_mark, road.centre_change), *road.later_centre_marks):
        _mark(centre, "yellow" if left else "standard", *mark)
    if right:
        side = SubElement(section, "right")
        for lane in right:
            _lane(side, lane)


def _lane(side: Element, lane: Lane) -> None:
    element = SubElement(side, "lane", id=str(lane.id), type=lane.kind, level="false")
    link = SubElement(element, "link")
    for tag, target in (("predecessor", lane.predecessor), ("successor", lane.successor)):
        if target is not None:
            SubElement(link, tag, id=str(target))
    for width in ((0.0, *lane.width), *lane.later_widths):
        SubElement(element, "width", _numbers("sOffset", width))
    for mark in ((0.0, lane.mark, lane.lane_change), *lane.later_marks):
        _mark(element, "standard", *mark)


def _mark(lane: Element, colour: str, begin: float, kind: str, change: str) -> None:
    texts = {"sOffset": repr(float(begin)), "type": kind}
    mark = SubElement(lane, "roadMark", texts, weight="standard", color=colour, width="0.15")
    if change:
        mark.set("laneChange", change)


def _objects(objects: Element, road: Road) -> None:
    for box in road.buildings:
        numbers = {
            "s": box.s + road.begin,
            "t": box.t,
            "zOffset": 0.0,
            "length": box.length,
            "width": box.width,
            "height": box.height,
        }
        texts = {key: repr(float(value)) for key, value in numbers.items()}
        SubElement(objects, "object", {"id": str(box.id), "name": "building", "type": "building"} | texts | _STRAIGHT)
    for crosswalk in road.crosswalks:
        _crosswalk(objects, crosswalk, road.begin)


def _crosswalk(objects: Element, crosswalk: Crosswalk, begin: float) -> None:
    """Write the polygon into `cornerLocal` elements of an `outline`, which CARLA reads."""
    length, width = crosswalk.size
    numbers = {"s": crosswalk.s + begin, "t": crosswalk.t, "zOffset": crosswalk.z, "hdg": crosswalk.heading}
    numbers |= {"pitch": 0.0, "roll": 0.0, "length": length, "width": width}
    texts = {"id": crosswalk.id, "name": crosswalk.name, "type": "crosswalk", "orientation": crosswalk.orientation}
    element = SubElement(objects, "object", texts | {key: repr(float(value)) for key, value in numbers.items()})
    outline = SubElement(element, "outline")
    for corner in crosswalk.corners:
        SubElement(outline, "cornerLocal", dict(zip("uvz", map(repr, map(float, corner)), strict=True)))


_STRAIGHT = {"orientation": "none", "hdg": "0.0", "pitch": "0.0", "roll": "0.0"}


def _signal(signals: Element, signal: Signal) -> None:
    numbers = {"s": signal.s, "t": signal.t, "zOffset": 0.0, "hOffset": 0.0, "roll": 0.0, "pitch": 0.0}
    texts = {key: repr(float(value)) for key, value in numbers.items()}
    kinds = {
        "type": signal.type,
        "subtype": "-1",
        "value": repr(float(signal.value)),
        "unit": signal.unit,
        "country": "OpenDRIVE",
    }
    names = {"id": str(signal.id), "name": f"signal{signal.id}", "orientation": signal.orientation}
    size = {"height": "1.0", "width": "0.5", "dynamic": "yes" if signal.dynamic else "no"}
    element = SubElement(signals, "signal", texts | kinds | names | size)
    SubElement(element, "validity", fromLane=str(signal.lanes[0]), toLane=str(signal.lanes[1]))


def _reference(signals: Element, one: Reference, road: Road) -> None:
    numbers = {"s": one.s + road.begin, "t": one.t}
    texts = {key: repr(float(value)) for key, value in numbers.items()}
    element = SubElement(signals, "signalReference", {"id": str(one.signal), "orientation": one.orientation} | texts)
    low, high = sorted(one.lanes)
    ids = [lane.id for lane in road.lanes if low <= lane.id <= high]  # clients follow a lane that is not there into a crash
    if ids:
        SubElement(element, "validity", fromLane=str(min(ids)), toLane=str(max(ids)))


def _junction(root: Element, junction: Junction, numbers: dict[int, int]) -> None:
    element = SubElement(root, "junction", id=str(junction.id), name=f"junction{junction.id}")
    for way in junction.connections:
        incoming, connecting = numbers[way.incoming], numbers[way.connecting]
        texts = {"id": way.id, "incomingRoad": incoming, "connectingRoad": connecting, "contactPoint": way.contact}
        connection = SubElement(element, "connection", {key: str(value) for key, value in texts.items()})
        for start, end in way.links:
            SubElement(connection, "laneLink", {"from": str(start), "to": str(end)})
    for number in junction.controllers:
        SubElement(element, "controller", id=str(number), type="0", sequence="0")
