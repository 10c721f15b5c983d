"""Read the supported part of OpenDRIVE: curves, lane sections, widths and offsets, on level ground.

Unsupported maps are refused with the faulty road, before any client gets the text. What editors round is snapped, and links
of lanes that nobody drives on are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from carla_standin.errors import InvalidMap
from carla_standin.maps.curves import Cubic, Spiral
from carla_standin.maps.roads import (
    Building,
    Connection,
    Controller,
    Crosswalk,
    Junction,
    Lane,
    Link,
    Piece,
    Polynomial,
    Reference,
    Road,
    RoadMap,
    Signal,
    piecewise,
)
from carla_standin.maps.sections import NARROWEST, Sections, driven_links, without_slivers
from carla_standin.maps.validator import SHORTEST

LARGEST = 50_000_000
"""Largest number of characters of an OpenDRIVE document that is read."""
SUPPORTED = "lines, arcs, spirals and cubic polynomials, lanes with widths, level ground"
LEVEL = 0.05
"""Largest difference [m] between the highest and the lowest place of ground that counts as level."""
ROUNDED = 0.01, 0.005
"""[m], and share of a road, by which editors round lengths and places along it."""
CHANGES = ("", "none", "both", "increase", "decrease")
MPS = {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704}


def from_opendrive(text: str, name: str = "OpenDriveMap", *, flatten: bool = False) -> RoadMap:
    """Parse an OpenDRIVE document.

    Args:
        text: The document, XML.
        name: Name of the map.
        flatten: Whether hills and banked roads are read as level ground, instead of being refused.

    Raises:
        InvalidMap: The text is not OpenDRIVE, or needs features that are not supported.
    """
    root = _parsed(text)
    header = root.find("header")
    latitude, longitude = _origin("" if header is None else header.findtext("geoReference") or "")
    elements = root.findall("road")
    if not flatten:
        _require_level(elements)
    signals = {_whole(signal, "id") for element in elements for signal in element.findall("signals/signal")}
    whole = Sections([_road(element, signals) for element in elements])
    road_map = RoadMap(
        name,
        tuple(whole.linked()),
        tuple(whole.joined(_junction(element)) for element in root.findall("junction")),
        tuple(_controller(element) for element in root.findall("controller")),
        latitude,
        longitude,
    )
    return driven_links(road_map)


def name_of(text: str) -> str:
    """Return the name in a map's header; "" if it has none."""
    header = _parsed(text).find("header")
    return "" if header is None else header.get("name", "")


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
    """Return an attribute of an XML element as a number.

    Args:
        element: The element.
        key: Name of the attribute.
        default: Value if the attribute is missing; None if it must be there.

    Raises:
        InvalidMap: The attribute is missing, or no finite number.
    """
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


def _road(element: Element, signals: set[int]) -> list[Road]:
    """Return the sections of a road, all with its id and its links; signals: ids of those of the map."""
    where = f"road {element.get('id')}"
    speed = element.find("type/speed")
    common = Road(
        _whole(element, "id"),
        tuple(_pieces(element, where)),
        (),
        _whole(element, "junction") if "junction" in element.attrib else -1,
        _link(element.find("link/predecessor")),
        _link(element.find("link/successor")),
        50 / 3.6 if speed is None else number(speed, "max") * MPS.get(speed.get("unit", "m/s"), 1.0),
        offsets=tuple(sorted(_polynomial(part, "s") for part in element.findall("lanes/laneOffset"))),
    )
    if abs(common.whole - number(element, "length")) > _rounding(common.whole):
        raise InvalidMap(f"The length of {where} is not that of its pieces.", got=element.get("length"), allowed=common.whole)
    return _furnished(element, _sections(element, common, where), signals)


def _rounding(length: float) -> float:
    """Return the largest error [m] by which editors round places along a road of this length [m]."""
    least, share = ROUNDED
    return max(least, share * length)


def _along(element: Element, road: Road, default: float | None = None) -> float:
    """Return the place `s` [m] of an element along a road; a rounding error beyond the road's ends is removed."""
    s = number(element, "s", default)
    snapped = min(max(s, 0.0), road.whole)
    return snapped if abs(s - snapped) <= _rounding(road.whole) else s


def _sections(element: Element, common: Road, where: str) -> list[Road]:
    found = sorted(element.findall("lanes/laneSection"), key=lambda section: number(section, "s", 0.0))
    begins = [_along(section, common, 0.0) for section in found]
    ends = [*begins[1:], common.whole]
    stands = [number(section, "s", 0.0) for section in found]
    if not found or begins[0] != 0 or begins[-1] > common.whole or len(set(stands)) < len(stands):
        raise InvalidMap(
            f"The lane sections of {where} do not follow each other.", got=begins, allowed=f"0 to {common.whole:g}"
        )
    made = []
    for section, begin, end in zip(found, begins, ends, strict=True):
        marks = _marks(section.find("center/lane"))
        lanes = [lane for side in ("left", "right") for lane in section.findall(f"{side}/lane")]
        part = replace(
            common,
            lanes=tuple(_with_width(_lane(lane, where), end - begin) for lane in lanes),
            centre_mark=marks[0][1],
            centre_change=marks[0][2],
            later_centre_marks=marks[1:],
            begin=begin,
            extent=None if len(found) == 1 else end - begin,
        )
        made.append(part)
    made = without_slivers(made)
    return [replace(made[0], extent=None)] if len(made) == 1 else made


def _furnished(element: Element, sections: list[Road], known: set[int]) -> list[Road]:
    """Return the sections with the signals, buildings and crosswalks beside them, and references to known signals."""
    whole = sections[-1]
    signals = [replace(_signal(one), s=_along(one, whole)) for one in element.findall("signals/signal")]
    referring = [_reference(one) for one in element.findall("signals/signalReference")]
    places = [_along(one, whole) for one in element.findall("signals/signalReference")]
    references = [replace(one, s=s) for one, s in zip(referring, places, strict=True) if one.signal in known]
    boxes = [_building(box) for box in element.findall("objects/object") if box.get("type") == "building"]
    crosswalks = list(_crosswalks(element.findall("objects/object"), whole))
    made = []
    for part in sections:
        begin, end, is_last = part.begin, part.begin + part.length, part is whole

        def is_here(s: float, begin: float = begin, end: float = end, is_last: bool = is_last) -> bool:
            return begin <= s < end or (is_last and s >= end)

        part = replace(  # noqa: PLW2901
            part,
            buildings=tuple(replace(box, s=box.s - begin) for box in boxes if is_here(box.s)),
            crosswalks=tuple(replace(walk, s=walk.s - begin) for walk in crosswalks if is_here(walk.s)),
            references=tuple(replace(one, s=one.s - begin) for one in references if is_here(one.s)),
        )
        here = [replace(signal, s=signal.s - begin) for signal in signals if is_here(signal.s)]
        made.append(replace(part, signals=tuple(_counting(signal, part) for signal in here)))
    return made


def _with_width(lane: Lane, length: float) -> Lane:
    """Return a lane, of the kind "none" if it is one for driving but has no width on its section of `length` [m]."""
    widest = float(lane.width_at(np.linspace(0.0, length, 33)).max())
    return replace(lane, kind="none") if lane.kind == "driving" and widest < NARROWEST else lane


def _counting(signal: Signal, road: Road) -> Signal:
    """Return a signal with the lanes for which it counts; by default, all lanes of its orientation."""
    if signal.lanes != (0, 0):
        return signal
    ids = [lane.id for lane in road.lanes]
    low = 0 if signal.orientation == "-" else min(*ids, 0)
    high = 0 if signal.orientation == "+" else max(*ids, 0)
    return replace(signal, lanes=(low, high))


def _require_level(roads: list[Element]) -> None:
    """Raise InvalidMap unless all roads lie at one height, whatever it is."""
    ranges = [(element, *_heights(element)) for element in roads]
    if not ranges:
        return
    lowest, highest = min(low for _, low, _ in ranges), max(high for _, _, high in ranges)
    for element, low, high in ranges:
        if highest - lowest > LEVEL and (high - low > LEVEL or low > lowest + LEVEL or high < highest - LEVEL):
            raise InvalidMap(
                f"The ground of the stand-in is level, and road {element.get('id')} is not.",
                got=f"elevation {low:.3g} to {high:.3g} m, {lowest:.3g} to {highest:.3g} m on the map",
                allowed=f"{LEVEL} m between the highest and the lowest place",
                fix="serve the map flattened (robo-rl carla-server --flatten), or load it in CARLA",
            )
        for tag in ("lateralProfile/superelevation", "lateralProfile/shape"):
            if any(number(part, key, 0.0) for part in element.findall(tag) for key in "abcd"):
                raise InvalidMap(
                    f"A map has more than the stand-in reads: road {element.get('id')}.",
                    got=tag,
                    allowed=SUPPORTED,
                    fix="serve the map flattened (robo-rl carla-server --flatten)",
                )


def _heights(element: Element) -> tuple[float, float]:
    """Return the lowest and the highest elevation [m] of a road."""
    profile = sorted(_polynomial(part, "s") for part in element.findall("elevationProfile/elevation"))
    length = number(element, "length")
    heights = piecewise(tuple(profile), np.linspace(0.0, length, max(int(length), 1) + 1))
    return float(heights.min()), float(heights.max())


def _polynomial(element: Element, begin: str) -> Polynomial:
    a, b, c, d = (number(element, key, 0.0) for key in "abcd")
    return number(element, begin, 0.0), a, b, c, d


def _pieces(element: Element, where: str) -> Iterator[Piece]:
    found = element.findall("planView/geometry")
    longest = max((number(geometry, "length") for geometry in found), default=0.0)
    for geometry in found:
        x, y, heading, length = (number(geometry, key) for key in ("x", "y", "hdg", "length"))
        if length < min(SHORTEST, longest):
            continue  # left over by an editor
        shape = next(iter(geometry), None)
        tag = None if shape is None else shape.tag
        if shape is None or tag not in ("line", "arc", "spiral", "poly3", "paramPoly3"):
            raise InvalidMap(f"A map has more than the stand-in reads: {where}.", got=tag, allowed=SUPPORTED)
        curvature = number(shape, "curvature") if tag == "arc" else 0.0
        yield Piece(x, y, heading, length, curvature, _shape(shape, length, where) if tag not in ("line", "arc") else None)


def _shape(element: Element, length: float, where: str) -> Spiral | Cubic:
    if length <= 0:
        raise InvalidMap(f"A curve of {where} has no length.", got=length)
    if element.tag == "spiral":
        return Spiral(number(element, "curvStart"), number(element, "curvEnd"), length)
    scale = element.get("pRange", "normalized")
    if element.tag == "poly3":
        u = (0.0, 1.0, 0.0, 0.0)
        a, b, c, d = (number(element, key) for key in "abcd")
        return Cubic(u, (a, b, c, d), length, length, "poly3")
    (au, bu, cu, du), (av, bv, cv, dv) = [[number(element, f"{key}{axis}") for key in "abcd"] for axis in "UV"]
    curve = Cubic((au, bu, cu, du), (av, bv, cv, dv), length if scale == "arcLength" else 1.0, length, scale=scale)
    if abs(curve.reach - length) > max(0.1, 0.01 * length):
        raise InvalidMap(f"A curve of {where} is not as long as it says.", got=length, allowed=f"{curve.reach:.4g} m")
    return curve


def _lane(element: Element, where: str) -> Lane:
    widths = sorted(_polynomial(width, "sOffset") for width in element.findall("width"))
    if not widths and element.find("border") is None:
        widths = [(0.0, 0.0, 0.0, 0.0, 0.0)]
    if not widths or widths[0][0] != 0:
        raise InvalidMap(f"A lane of {where} has no width from its beginning on.", got=widths, allowed=SUPPORTED)
    marks = _marks(element)
    before, after = (element.find(f"link/{tag}") for tag in ("predecessor", "successor"))
    return Lane(
        _whole(element, "id"),
        element.get("type", "none"),
        widths[0][1:],
        marks[0][1],
        None if before is None else _whole(before, "id"),
        None if after is None else _whole(after, "id"),
        marks[0][2],
        tuple(widths[1:]),
        marks[1:],
    )


def _marks(lane: Element | None) -> tuple[tuple[float, str, str], ...]:
    """Return begin [m], kind and permitted lane changes of a lane's lines, the first of which begins at 0."""
    found = [] if lane is None else lane.findall("roadMark")
    marks = sorted((number(mark, "sOffset", 0.0), mark.get("type", "none"), _change(mark)) for mark in found)
    return tuple(marks) if marks and marks[0][0] == 0 else ((0.0, "none", ""), *marks)


def _change(mark: Element | None) -> str:
    """Return the lane changes that a line permits; "" if unspecified, which clients take for both ways."""
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
    lanes = (0, 0) if validity is None else (_whole(validity, "fromLane"), _whole(validity, "toLane"))
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


def _reference(element: Element) -> Reference:
    validity = element.find("validity")
    lanes = (0, 0) if validity is None else (_whole(validity, "fromLane"), _whole(validity, "toLane"))
    place = number(element, "s"), number(element, "t", 0.0)
    return Reference(_whole(element, "id"), *place, element.get("orientation", "+"), lanes)


def _building(element: Element) -> Building:
    return Building(_whole(element, "id"), *(number(element, key) for key in ("s", "t", "length", "width", "height")))


def _crosswalks(objects: list[Element], road: Road) -> Iterator[Crosswalk]:
    """Yield the crosswalks with a polygon in `outline/cornerLocal`; CARLA cannot place others either."""
    for index, element in enumerate(objects):
        found = element.findall("outline/cornerLocal") if element.get("type") == "crosswalk" else []
        corners = tuple((number(one, "u"), number(one, "v"), number(one, "z", 0.0)) for one in found)
        if len(corners) > 2:
            s, (t, heading, z) = _along(element, road, 0.0), (number(element, key, 0.0) for key in ("t", "hdg", "zOffset"))
            name, orientation = element.get("name", "crosswalk"), element.get("orientation", "none")
            made = Crosswalk(element.get("id", str(index)), s, t, heading, corners, name, z, orientation)
            if min(made.size) > 0:
                yield made


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
