"""Bags written by the libraries' own writers, as recorders of ROS 2 write them.

As a script it records until it is killed:  python bag_writer.py {mcap,sqlite3} PATH
"""

from __future__ import annotations

import sqlite3
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
BEGIN = 1_700_000_000_000_000_000
"""[ns]"""
STATE, COMMAND, IMAGE = "sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray", "sensor_msgs/msg/Image"
JOINTS = ["shoulder", "elbow"]


@dataclass(frozen=True)
class Sent:
    """One message: topic, type, time of the recorder [s], and the message."""

    topic: str
    type: str
    at: float
    message: object

    @property
    def logged(self) -> int:
        return BEGIN + round(self.at * 1e9)

    @property
    def raw(self) -> bytes:
        return bytes(STORE.serialize_cdr(self.message, self.type))


def make(kind: str, *values: object) -> object:
    return STORE.types[kind](*values)


def header(at: float | None) -> object:
    """Return a header with a stamp; None leaves it 0."""
    stamp = 0 if at is None else BEGIN + round(at * 1e9)
    return make("std_msgs/msg/Header", make("builtin_interfaces/msg/Time", *divmod(stamp, 10**9)), "base")


def state(at: float, position, *, names=JOINTS, velocity=(), stamped: float | None = None, topic="/joint_states") -> Sent:
    arrays = [np.asarray(values, np.float64) for values in (position, velocity, ())]
    return Sent(topic, STATE, at, make(STATE, header(at if stamped is None else stamped), [*names], *arrays))


def command(at: float, data, topic="/arm/commands") -> Sent:
    layout = make("std_msgs/msg/MultiArrayLayout", [], 0)
    return Sent(topic, COMMAND, at, make(COMMAND, layout, np.asarray(data, np.float64)))


def image(at: float, picture, encoding="rgb8", *, pad=0, topic="/camera/image_raw", **changes) -> Sent:
    """Return a picture (H, W, C); pad: further bytes of each row."""
    rows = np.asarray(picture, np.uint8)
    height, width = rows.shape[:2]
    data = np.pad(rows.reshape(height, -1), ((0, 0), (0, pad)))
    values = {"height": height, "width": width, "step": data.shape[1], "data": data.ravel()} | changes
    parts = (values["height"], values["width"], encoding, 0, values["step"], values["data"])
    return Sent(topic, IMAGE, at, make(IMAGE, header(at), *parts))


def compressed(at: float, content: bytes, form="jpeg", topic="/camera/image_raw/compressed") -> Sent:
    kind = "sensor_msgs/msg/CompressedImage"
    return Sent(topic, kind, at, make(kind, header(at), form, np.frombuffer(content, np.uint8)))


def text(at: float, words: str, topic="/episode") -> Sent:
    return Sent(topic, "std_msgs/msg/String", at, make("std_msgs/msg/String", words))


def truth(at: float, value: bool, topic="/success") -> Sent:
    return Sent(topic, "std_msgs/msg/Bool", at, make("std_msgs/msg/Bool", value))


def pose(at: float, position, quaternion, topic="/hand") -> Sent:
    """quaternion: (x, y, z, w), as ROS has it."""
    where = make("geometry_msgs/msg/Point", *position), make("geometry_msgs/msg/Quaternion", *quaternion)
    kind = "geometry_msgs/msg/PoseStamped"
    return Sent(topic, kind, at, make(kind, header(at), make("geometry_msgs/msg/Pose", *where)))


def twist(at: float, linear, angular, topic="/cmd_vel") -> Sent:
    parts = (make("geometry_msgs/msg/Vector3", *values) for values in (linear, angular))
    return Sent(topic, "geometry_msgs/msg/Twist", at, make("geometry_msgs/msg/Twist", *parts))


def trajectory(at: float, points, *, names=JOINTS, topic="/arm/joint_trajectory") -> Sent:
    point, kind = "trajectory_msgs/msg/JointTrajectoryPoint", "trajectory_msgs/msg/JointTrajectory"
    none, start = np.zeros(0), make("builtin_interfaces/msg/Duration", 0, 0)
    found = [make(point, np.asarray(each, np.float64), none, none, none, start) for each in points]
    return Sent(topic, kind, at, make(kind, header(None), [*names], found))


def write(path: Path, sent: list[Sent], kind: str = "mcap") -> Path:
    """Write a bag as rosbags' writer does: a folder with metadata.yaml; kind: mcap or sqlite3."""
    plugin = StoragePlugin.MCAP if kind == "mcap" else StoragePlugin.SQLITE3
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        connections = {}
        for each in sent:
            if each.topic not in connections:
                connections[each.topic] = writer.add_connection(each.topic, each.type, typestore=STORE)
            writer.write(connections[each.topic], each.logged, each.raw)
    return path


class McapRecorder:
    """MCAP file by mcap's own writer, as rosbag2 lays it out."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.file = path.open("wb")
        self.writer = McapWriter(self.file, **settings)
        self.writer.start("ros2", "test")
        self._channels: dict[str, int] = {}

    def add(self, sent: Sent) -> None:
        if sent.topic not in self._channels:
            definition = STORE.generate_msgdef(sent.type, ros_version=2)[0]
            schema = self.writer.register_schema(sent.type, "ros2msg", definition.encode())
            self._channels[sent.topic] = self.writer.register_channel(sent.topic, "cdr", schema)
        self.writer.add_message(self._channels[sent.topic], sent.logged, sent.raw, sent.logged)

    def close(self) -> None:
        self.writer.finish()
        self.file.close()


def write_mcap(path: Path, sent: list[Sent], **settings: object) -> Path:
    recorder = McapRecorder(path, **settings)
    for each in sent:
        recorder.add(each)
    recorder.close()
    return path


class SqliteRecorder:
    """Database as rosbag2 of Humble fills it: a write-ahead log, and no definitions of messages."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=NORMAL")
        self.connection.executescript(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,"
            " serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);"
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,"
            " data BLOB NOT NULL);"
        )
        self._topics: dict[str, int] = {}

    def add(self, sent: Sent) -> None:
        if sent.topic not in self._topics:
            values = (sent.topic, sent.type, "cdr", "")
            add = "INSERT INTO topics(name, type, serialization_format, offered_qos_profiles) VALUES(?,?,?,?)"
            self._topics[sent.topic] = self.connection.execute(add, values).lastrowid
        add = "INSERT INTO messages(topic_id, timestamp, data) VALUES(?,?,?)"
        self.connection.execute(add, (self._topics[sent.topic], sent.logged, sent.raw))
        self.connection.commit()


def arm(steps: int, *, first: float = 0.0) -> list[Sent]:
    """Return states at 100 Hz, and commands at 20 Hz 10 ms after a state; position k/100, command k."""
    found = [state(first + k / 100, (k / 100, -k / 100)) for k in range(5 * steps + 1)]
    found += [command(first + k / 20 + 0.01, (k, 2 * k)) for k in range(steps)]
    return sorted(found, key=lambda each: each.at)


if __name__ == "__main__":
    place = Path(sys.argv[2])
    recorder = McapRecorder(place, chunk_size=4096) if sys.argv[1] == "mcap" else SqliteRecorder(place)
    for number, each in enumerate(arm(2000)):
        recorder.add(each)
        if number == 600:
            if sys.argv[1] == "mcap":
                recorder.file.flush()
            print("recorded", flush=True)
        time.sleep(0.0002 if number > 600 else 0)
