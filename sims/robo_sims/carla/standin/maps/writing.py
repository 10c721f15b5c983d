"""Writes a road map as OpenDRIVE 1.4."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from robo_sims.carla.standin.maps.roads import Junction, Lane, Link, Road, RoadMap, Signal


def to_opendrive(road_map: RoadMap) -> str:
    """Returns the text of the file; the same map gives the same text."""
    root = Element("OpenDRIVE")
    _header(root, road_map)
    for road in road_map.roads:
        _road(root, road)
    for controller in road_map.controllers:
        element = SubElement(root, "controller", id=str(controller.id), name=f"controller{controller.id}", sequence="0")
        for signal in controller.signals:
            SubElement(element, "control", signalId=str(signal), type="")
    for junction in road_map.junctions:
        _junction(root, junction)
    ElementTree.indent(root, "")
    return '<?xml version="1.0" standalone="yes"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _header(root: Element, road_map: RoadMap) -> None:
    header = SubElement(root, "header", revMajor="1", revMinor="4", name=road_map.name, version="1", vendor="robo-rl")
    reference = f"+proj=tmerc +lat_0={road_map.latitude!r} +lon_0={road_map.longitude!r} +k=1 +x_0=0 +y_0=0 +datum=WGS84"
    SubElement(header, "geoReference").text = reference + " +units=m +no_defs"


def _road(root: Element, road: Road) -> None:
    name = f"road {road.id}"
    element = SubElement(root, "road", name=name, length=repr(road.length), id=str(road.id), junction=str(road.junction))
    link = SubElement(element, "link")
    for tag, target in (("predecessor", road.predecessor), ("successor", road.successor)):
        if target is not None:
            _link(link, tag, target)
    kind = SubElement(element, "type", s="0.0", type="town")
    SubElement(kind, "speed", max=repr(road.speed), unit="m/s")
    _plan(element, road)
    profile = SubElement(element, "elevationProfile")
    SubElement(profile, "elevation", s="0.0", a="0.0", b="0.0", c="0.0", d="0.0")
    SubElement(element, "lateralProfile")
    _lanes(element, road)
    _objects(element, road)
    signals = SubElement(element, "signals")
    for signal in road.signals:
        _signal(signals, signal)


def _link(parent: Element, tag: str, target: Link) -> None:
    element = SubElement(parent, tag, elementType=target.kind, elementId=str(target.id))
    if target.contact is not None:
        element.set("contactPoint", target.contact)


def _plan(element: Element, road: Road) -> None:
    view, s = SubElement(element, "planView"), 0.0
    for piece in road.pieces:
        numbers = {"s": s, "x": piece.x, "y": piece.y, "hdg": piece.heading, "length": piece.length}
        geometry = SubElement(view, "geometry", {key: repr(float(value)) for key, value in numbers.items()})
        if piece.curvature:
            SubElement(geometry, "arc", curvature=repr(float(piece.curvature)))
        else:
            SubElement(geometry, "line")
        s += piece.length


def _lanes(element: Element, road: Road) -> None:
    section = SubElement(SubElement(element, "lanes"), "laneSection", s="0.0")
    left = sorted((lane for lane in road.lanes if lane.id > 0), key=lambda lane: -lane.id)
    right = sorted((lane for lane in road.lanes if lane.id < 0), key=lambda lane: -lane.id)
    if left:
        side = SubElement(section, "left")
        for lane in left:
            _lane(side, lane)
    centre = SubElement(SubElement(section, "center"), "lane", id="0", type="none", level="false")
    SubElement(centre, "link")
    _mark(centre, road.centre_mark, "yellow" if left else "standard", road.centre_change)
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
    SubElement(element, "width", dict(zip(("sOffset", *"abcd"), map(repr, (0.0, *lane.width)), strict=True)))
    _mark(element, lane.mark, "standard", lane.lane_change)


def _mark(lane: Element, kind: str, colour: str, change: str) -> None:
    mark = SubElement(lane, "roadMark", sOffset="0.0", type=kind, weight="standard", color=colour, width="0.15")
    if change:
        mark.set("laneChange", change)


def _objects(element: Element, road: Road) -> None:
    objects = SubElement(element, "objects")
    for box in road.buildings:
        numbers = {"s": box.s, "t": box.t, "zOffset": 0.0, "length": box.length, "width": box.width, "height": box.height}
        texts = {key: repr(float(value)) for key, value in numbers.items()}
        SubElement(objects, "object", {"id": str(box.id), "name": "building", "type": "building"} | texts | _STRAIGHT)


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


def _junction(root: Element, junction: Junction) -> None:
    element = SubElement(root, "junction", id=str(junction.id), name=f"junction{junction.id}")
    for way in junction.connections:
        texts = {"id": way.id, "incomingRoad": way.incoming, "connectingRoad": way.connecting, "contactPoint": way.contact}
        connection = SubElement(element, "connection", {key: str(value) for key, value in texts.items()})
        for start, end in way.links:
            SubElement(connection, "laneLink", {"from": str(start), "to": str(end)})
    for number in junction.controllers:
        SubElement(element, "controller", id=str(number), type="0", sequence="0")
