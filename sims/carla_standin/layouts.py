"""All sizes, indices and byte layouts of the protocol of the CARLA 0.9.16 client.

The client casts received bytes without a check: a wrong size or number here is a segmentation fault there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

import numpy as np

VERSION = "0.9.16"
"""Version of the client with these layouts."""

TOKEN = struct.Struct("<IHBB16s")
"""Address of a stream: its id, port, protocol, kind of address, and no address: the client takes the server's."""
TCP, NO_ADDRESS = 1, 0
WORLD_STREAM = 1
"""Id of the stream that sends a snapshot of all actors after each step."""
LENGTH = struct.Struct("<I")
"""Format of the length before each message of a stream; a client's subscription sends the id of the stream in this format."""
SENSOR_HEADER = struct.Struct("<QQd6f")
"""Header of a measurement: type, frame, timestamp [s], x, y, z [m], pitch, yaw, roll [degree]."""
SNAPSHOT_HEADER = struct.Struct("<Qdf3iI")
"""Header of a snapshot: episode, platform timestamp [s], step [s], origin of the map, state."""
MAP_CHANGED = 1
IMAGE_HEADER = struct.Struct("<IIf")
"""Header of a picture in a message: width and height [pixel], field of view [degree]."""
LIDAR_HEADER = struct.Struct("<fI")
"""Header of a lidar's points: horizontal angle [rad], channels; then the points of each channel, uint32."""

FIELDS: tuple[tuple[str, str, int], ...] = (
    ("id", "<u4", 0),
    ("state", "u1", 4),
    ("motion", "<15f4", 5),  # x y z, pitch yaw roll [degree], velocity, angular velocity [degree/s], acceleration
    # the union, of a vehicle
    ("pedals", "<3f4", 65),  # throttle, steer, brake
    ("hand_brake", "u1", 77),
    ("reverse", "u1", 78),
    ("manual", "u1", 79),
    ("gear", "<i4", 80),
    ("limit", "<f4", 84),  # [km/h]
    ("light_state", "u1", 88),
    ("has_light", "u1", 89),
    ("light", "<u4", 90),
    ("failure", "u1", 94),
    # of a traffic light
    ("sign", "S32", 65),
    ("times", "<4f4", 97),  # green, yellow, red, elapsed [s]
    ("pole", "<u4", 113),
    ("frozen", "u1", 117),
    ("colour", "u1", 118),
    # of a walker
    ("direction", "<3f4", 65),
    ("walking", "<f4", 77),
    ("jump", "u1", 81),
)
"""Name, type and offset of the fields of an actor's record; each kind of actor has its own member of the union."""
_NAMES, _FORMATS, _OFFSETS = (list(column) for column in zip(*FIELDS, strict=True))
ACTOR_RECORD = np.dtype({"names": _NAMES, "formats": _FORMATS, "offsets": _OFFSETS, "itemsize": 119})
ACTIVE = 1
"""State of an actor that exists, in its record."""

LIDAR_POINT = np.dtype([("place", "<f4", 3), ("intensity", "<f4")])
SEMANTIC_POINT = np.dtype([("place", "<f4", 3), ("cosine", "<f4"), ("actor", "<u4"), ("tag", "<u4")])
"""Record of a semantic lidar point: place in the sensor's frame [m], cosine of the angle of incidence, actor's id or 0,
label."""
RADAR_POINT = np.dtype([("velocity", "<f4"), ("azimuth", "<f4"), ("altitude", "<f4"), ("depth", "<f4")])
"""Record of a radar point: velocity [m/s], positive if the distance grows, azimuth and altitude [rad], depth [m]."""
DVS_EVENT = np.dtype([("x", "<u2"), ("y", "<u2"), ("t", "<i8"), ("pol", "?")])
"""Record of one event of an event camera: column, row [pixel], time [ns], true if the pixel became brighter."""
FLOW_PIXEL = np.dtype([("x", "<f4"), ("y", "<f4")])

NAV_SET, NAV_ENTRY = struct.Struct("<4sii5f2i"), struct.Struct("<Ii")
"""Header of a navigation mesh: magic, version, tiles, origin, width, height, most tiles, most polygons of a tile; and header of
a tile: its reference and size."""
NAV_SET_KIND, NAV_TILE_KIND = (b"TESM", 1), (b"VAND", 7)
"""Magic bytes and version of a navigation mesh file, and of a tile in it; the client reads the magic as a number."""
NAV_TILE = struct.Struct("<4si3iI9i3f6ff")
"""Binary header of a tile of a navigation mesh.

Fields in order: magic, version; column, row, layer, user id; numbers of polygons, corners, links, detail meshes, detail
corners, detail triangles, tree nodes, off-mesh connections, and the first of these; height, radius and step of a walker;
bounds; cells per metre.
"""
NAV_TILE_LOW = 72
"""Offset [bytes] of the bounds in the header of a navigation mesh's tile."""
NAV_POLYGON = np.dtype(
    [
        ("first_link", "<u4"),
        ("corners", "<u2", 6),
        ("neighbours", "<u2", 6),  # 1 + the number of the polygon behind each edge
        ("flags", "<u2"),
        ("count", "u1"),
        ("area", "u1"),
    ]
)
NAV_DETAIL = np.dtype([("base", "<u4"), ("first", "<u4"), ("corners", "u1"), ("triangles", "u1"), ("", "<u2")])
NAV_NO_LINK, NAV_LINK_SIZE = 0xFFFFFFFF, 12

assert TOKEN.size == 24
assert SENSOR_HEADER.size == 48
assert SNAPSHOT_HEADER.size == 36
assert IMAGE_HEADER.size == 12
assert LIDAR_HEADER.size == 8
assert ACTOR_RECORD.itemsize == 119
assert LIDAR_POINT.itemsize == RADAR_POINT.itemsize == 16
assert SEMANTIC_POINT.itemsize == 24
assert DVS_EVENT.itemsize == 13
assert FLOW_PIXEL.itemsize == 8
assert NAV_SET.size == 40
assert NAV_TILE.size == 100
assert NAV_POLYGON.itemsize == 32
assert NAV_DETAIL.itemsize == 12


class SensorType(IntEnum):
    """First number of a sensor's header in 0.9.16."""

    COLLISION = 0
    DEPTH = 1
    NORMALS = 2
    DVS = 3
    GNSS = 4
    IMU = 5
    OBSTACLE = 7
    OPTICAL_FLOW = 8
    RADAR = 9
    SEMANTIC_LIDAR = 10
    LIDAR = 11
    RGB = 13
    SEMANTIC = 14
    INSTANCE = 15
    COSMOS = 16
    WORLD = 17


class Command(IntEnum):
    """Kind of a command in a batch, as CARLA's protocol numbers it."""

    SPAWN = 0
    DESTROY = 1
    VEHICLE_CONTROL = 2
    ACKERMANN = 3
    WALKER_CONTROL = 4
    PHYSICS_CONTROL = 5
    TRANSFORM = 6
    WALKER_STATE = 7
    TARGET_VELOCITY = 8
    TARGET_ANGULAR_VELOCITY = 9
    IMPULSE = 10
    FORCE = 11
    ANGULAR_IMPULSE = 12
    TORQUE = 13
    SIMULATE_PHYSICS = 14
    ENABLE_GRAVITY = 15
    AUTOPILOT = 16
    DEBUG_TELEMETRY = 17
    LIGHT_STATE = 18
    LOCATION = 19
    CONSOLE = 20
    TRAFFIC_LIGHT = 21


class Attribute(IntEnum):
    """Types of a blueprint's attributes."""

    BOOL = 1
    INT = 2
    FLOAT = 3
    STRING = 4
    COLOUR = 5


class TrafficLightState(IntEnum):
    """Colours of a traffic light, as CARLA's protocol numbers them."""

    RED = 0
    YELLOW = 1
    GREEN = 2
    OFF = 3
    UNKNOWN = 4


class Area(IntEnum):
    """Area type of a navigation mesh's polygon; its flag is the bit of this number."""

    BLOCK = 0
    SIDEWALK = 1
    CROSSWALK = 2
    ROAD = 3
    GRASS = 4


class Tag(IntEnum):
    """Semantic class of a pixel, since CARLA 0.9.14."""

    ROAD = 1
    SIDEWALK = 2
    BUILDING = 3
    POLE = 6
    TRAFFIC_LIGHT = 7
    TRAFFIC_SIGN = 8
    TERRAIN = 10
    SKY = 11
    PEDESTRIAN = 12
    CAR = 14
    TRUCK = 15
    BUS = 16
    MOTORCYCLE = 18
    BICYCLE = 19
    STATIC = 20
    ROAD_LINE = 24
    GROUND = 25


def token(stream: int, port: int) -> bytes:
    """Return the address of a stream by which a client subscribes to it."""
    return TOKEN.pack(stream, port, TCP, NO_ADDRESS, b"")


def length_of(parts: Iterable[bytes | memoryview]) -> bytes:
    """Return the length prefix of a message that consists of several parts, as bytes."""
    return LENGTH.pack(sum(map(len, parts)))
