"""Reads OpenDRIVE, the part that the stand-in draws and drives on: lines and arcs, one lane section a road, flat.

What it cannot read it refuses with the place, before any client sees the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from robo_rl.errors import InvalidMap
from robo_sims.carla.standin.maps.roads import (
    Building,
    Connection,
    Controller,
    Junction,
    Lane,
    Link,
    Piece,
    Road,
    RoadMap,
    Signal,
)

LARGEST = 50_000_000
"""Characters of a map."""
SUPPORTED = "lines and arcs, one lane section a road, lanes that begin at the reference line, flat ground"
CHANGES = ("", "none", "both", "increase", "decrease")
MPS = {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704}


def from_opendrive(text: str, name: str = "OpenDriveMap") -> RoadMap:
    """Returns the map of a text; raises InvalidMap for what is no OpenDRIVE, or needs more than the stand-in has."""
    root = _parsed(text)
    header = root.find("header")
    latitude, longitude = _origin("" if header is None else header.findtext("geoReference") or "")
    return RoadMap(
        name,
        tuple(_road(element) for element in root.findall("road")),
        tuple(_junction(element) for element in root.findall("junction")),
        tuple(_controller(element) for element in root.findall("controller")),
        latitude,
        longitude,
    )


def _parsed(text: str) -> Element:
    if len(text) > LARGEST:
        raise InvalidMap("A map is too large.", got=f"{len(text)} characters", allowed=f"{LARGEST} at most")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InvalidMap("A map declares XML entities.", allowed="plain elements")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InvalidMap("A map is no XML.", got=error, allowed="OpenDRIVE 1.4") from None
    if root.tag != "OpenDRIVE":
        raise InvalidMap("A map is no OpenDRIVE.", got=f"<{root.tag}>", allowed="<OpenDRIVE>")
    return root


def _origin(reference: str) -> tuple[float, float]:
    found = [re.search(rf"\+{key}=(\S+)", reference) for key in ("lat_0", "lon_0")]
    try:
        latitude, longitude = (float(match[1]) if match else 0.0 for match in found)
    except ValueError:
        raise InvalidMap("A map's geoReference has no numbers.", got=reference, allowed="+lat_0=49.0 +lon_0=8.0") from None
    return latitude, longitude


def number(element: Element, key: str, default: float | None = None) -> float:
    """Returns a finite number of an element."""
    text = element.get(key)
    if text is None and default is not None:
        return default
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidMap(f"<{element.tag}> of a map has no number {key!r}.", got=text, allowed="a finite number")
    return value


def _whole(element: Element, key: str) -> int:
    value = number(element, key)
    if value != int(value):
        raise InvalidMap(f"<{element.tag}> of a map has no whole number {key!r}.", got=value)
    return int(value)


def _road(element: Element) -> Road:
    where = f"road {element.get('id')}"
    sections = element.findall("lanes/laneSection")
    if len(sections) != 1:
        raise InvalidMap(
            f"A map has more than the stand-in reads: {where}.", got=f"{len(sections)} lane sections", allowed=SUPPORTED
        )
    _require_flat(element, where)
    centre = sections[0].find("center/lane/roadMark")
    speed = element.find("type/speed")
    pieces = tuple(_pieces(element, where))
    road = Road(
        _whole(element, "id"),
        pieces,
        tuple(_lane(lane, where) for side in ("left", "right") for lane in sections[0].findall(f"{side}/lane")),
        _whole(element, "junction") if "junction" in element.attrib else -1,
        _link(element.find("link/predecessor")),
        _link(element.find("link/successor")),
        50 / 3.6 if speed is None else number(speed, "max") * MPS.get(speed.get("unit", "m/s"), 1.0),
        "none" if centre is None else centre.get("type", "none"),
        tuple(_signal(signal) for signal in element.findall("signals/signal")),
        tuple(_building(box) for box in element.findall("objects/object") if box.get("type") == "building"),
        _change(centre),
    )
    if abs(road.length - number(element, "length")) > 1e-3:
        raise InvalidMap(f"The length of {where} is not that of its pieces.", got=element.get("length"), allowed=road.length)
    return road


def _require_flat(element: Element, where: str) -> None:
    tags = ("elevationProfile/elevation", "lateralProfile/superelevation", "lanes/laneOffset")
    for tag in tags:
        for part in element.findall(tag):
            if any(number(part, key, 0.0) for key in "abcd"):
                raise InvalidMap(f"A map has more than the stand-in reads: {where}.", got=tag, allowed=SUPPORTED)


def _pieces(element: Element, where: str) -> Iterator[Piece]:
    for geometry in element.findall("planView/geometry"):
        shape = next(iter(geometry), None)
        if shape is None or shape.tag not in ("line", "arc"):
            got = None if shape is None else shape.tag
            raise InvalidMap(f"A map has more than the stand-in reads: {where}.", got=got, allowed=SUPPORTED)
        x, y, heading, length = (number(geometry, key) for key in ("x", "y", "hdg", "length"))
        yield Piece(x, y, heading, length, number(shape, "curvature") if shape.tag == "arc" else 0.0)


def _lane(element: Element, where: str) -> Lane:
    widths = element.findall("width")
    if len(widths) != 1 or number(widths[0], "sOffset", 0.0):
        raise InvalidMap(f"A map has more than the stand-in reads: {where}.", got=f"{len(widths)} lane widths", allowed="one")
    mark = element.find("roadMark")
    targets = [element.find(f"link/{tag}") for tag in ("predecessor", "successor")]
    return Lane(
        _whole(element, "id"),
        element.get("type", "none"),
        tuple(number(widths[0], key, 0.0) for key in "abcd"),  # type: ignore[arg-type]
        "none" if mark is None else mark.get("type", "none"),
        *(None if target is None else _whole(target, "id") for target in targets),
        _change(mark),
    )


def _change(mark: Element | None) -> str:
    """Return the lane changes that a line permits; "" if the map does not say, which clients take for both ways."""
    change = "" if mark is None else mark.get("laneChange", "")
    if change not in CHANGES:
        raise InvalidMap("A line of a map has an unknown laneChange.", got=change, allowed=CHANGES[1:])
    return change


def _link(element: Element | None) -> Link | None:
    if element is None:
        return None
    return Link(element.get("elementType", "road"), _whole(element, "elementId"), element.get("contactPoint"))


def _signal(element: Element) -> Signal:
    validity = element.find("validity")
    lanes = (-1, -1) if validity is None else (_whole(validity, "fromLane"), _whole(validity, "toLane"))
    return Signal(
        _whole(element, "id"),
        number(element, "s"),
        number(element, "t"),
        element.get("type", "-1"),
        number(element, "value", -1.0),
        element.get("unit", ""),
        element.get("orientation", "+"),
        lanes,
        element.get("dynamic") == "yes",
    )


def _building(element: Element) -> Building:
    return Building(_whole(element, "id"), *(number(element, key) for key in ("s", "t", "length", "width", "height")))


def _junction(element: Element) -> Junction:
    ways = tuple(
        Connection(
            _whole(way, "id"),
            _whole(way, "incomingRoad"),
            _whole(way, "connectingRoad"),
            way.get("contactPoint", "start"),
            tuple((_whole(link, "from"), _whole(link, "to")) for link in way.findall("laneLink")),
        )
        for way in element.findall("connection")
    )
    return Junction(_whole(element, "id"), ways, tuple(_whole(part, "id") for part in element.findall("controller")))


def _controller(element: Element) -> Controller:
    return Controller(_whole(element, "id"), tuple(_whole(part, "signalId") for part in element.findall("control")))
