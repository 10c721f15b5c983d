"""Numbers, pictures and time stamps in the messages of a bag."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from robo_datasets.formats.bags.files import RawMessage, Topic
from robo_datasets.formats.encoded_picture import decoded
from robo_datasets.formats.recording import Array
from robo_rl.errors import DatasetError, optional, printable

FIELDS = {
    "sensor_msgs/msg/JointState": "position",
    "trajectory_msgs/msg/JointTrajectory": "points.-1.positions",
    "geometry_msgs/msg/PoseStamped": "pose",
    "geometry_msgs/msg/TwistStamped": "twist",
    "geometry_msgs/msg/WrenchStamped": "wrench",
    "geometry_msgs/msg/PointStamped": "point",
    "nav_msgs/msg/Odometry": "pose.pose",
}
"""Type -> field that is read unless another is named; the whole message, without its header, for other types."""
LEFT_OUT = ("header", "layout")
PICTURES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
NAMES = ("name", "joint_names")
"""Names of the message fields that hold joint names, one for each number of the message."""
CHANNELS = {
    **{"rgb8": (3, None), "bgr8": (3, "BGR2RGB"), "8UC3": (3, "BGR2RGB")},
    **{"rgba8": (4, "RGBA2RGB"), "bgra8": (4, "BGRA2RGB"), "8UC4": (4, "BGRA2RGB")},
    **{"mono8": (1, "GRAY2RGB"), "8UC1": (1, "GRAY2RGB")},
    **{"yuv422": (2, "YUV2RGB_UYVY"), "uyvy": (2, "YUV2RGB_UYVY")},
    **{"yuv422_yuy2": (2, "YUV2RGB_YUY2"), "yuyv": (2, "YUV2RGB_YUY2")},
    **{f"bayer_{mosaic.lower()}8": (1, f"Bayer{mosaic}2RGB") for mosaic in ("RGGB", "BGGR", "GBRG", "GRBG")},
}
"""Encoding of a sensor_msgs/Image -> bytes of a pixel, and OpenCV's conversion to RGB."""


class Decoder:
    """Decoder of the messages of a bag; each type is read by the definition in the file, or by ROS's own without one."""

    def __init__(self) -> None:
        self._stores: dict[Topic, Any] = {}

    def decode(self, message: RawMessage) -> Any:
        """Return a message as an object with attributes, or a mapping for JSON.

        Raises:
            DatasetError: Its encoding or type is not known, or it is damaged.
        """
        topic = message.topic
        if topic.encoding == "json":
            return _parsed(message)
        if topic.encoding != "cdr":
            allowed = "cdr (ROS 2), json"
            raise DatasetError(f"Messages of {topic.name} have an unknown encoding.", got=topic.encoding, allowed=allowed)
        if topic not in self._stores:
            self._stores[topic] = _store_of(topic)
        try:
            return self._stores[topic].deserialize_cdr(message.data, topic.type)
        except (ValueError, LookupError, AssertionError, TypeError, ArithmeticError, OSError) as error:
            raise _damaged(message, error) from None
        except Exception as error:  # struct.error, which is none of these
            if type(error).__name__ not in ("error", "SerdeError"):
                raise
            raise _damaged(message, error) from None


def _damaged(message: RawMessage, error: Exception) -> DatasetError:
    return DatasetError(
        f"A message of {message.topic.name} is damaged.",
        got=f"{len(message.data)} bytes, {type(error).__name__}: {printable(str(error), 100)}",
        allowed=message.topic.type,
        fix="leave the topic out of the mapping, or this bag",
    )


def _parsed(message: RawMessage) -> Mapping[str, Any]:
    try:
        found = json.loads(message.data)
    except (ValueError, RecursionError) as error:
        raise _damaged(message, error) from None
    if not isinstance(found, dict):
        raise _damaged(message, ValueError("no object"))
    return found


def _store_of(topic: Topic) -> Any:
    """Return the rosbags type store for a topic; raises DatasetError if its type cannot be known."""
    with optional("Reading messages of ROS 2", "rosbags", "ros"):
        from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
    if not topic.definition:
        store = get_typestore(Stores.LATEST)
        if topic.type not in store.fielddefs:
            fix = "record it as MCAP, which stores definitions, or leave the topic out"
            raise DatasetError(f"{topic.name} has a type of its own, and the bag no definition.", got=topic.type, fix=fix)
        return store
    try:
        types: dict[str, Any] = {}
        if topic.language == "ros2idl":
            for part in topic.definition.split("=" * 80 + "\n"):
                types |= get_types_from_idl(part.partition("\n")[2]) if part.startswith("IDL: ") else {}
        elif topic.language == "ros2msg":
            types = get_types_from_msg(topic.definition, topic.type)
        store = get_typestore(Stores.EMPTY)
        store.register(types)
        if topic.type not in store.fielddefs:
            raise ValueError(f"a definition in {topic.language!r}")
        return store
    except Exception as error:  # a parser's own errors: the text is a stranger's
        got = f"{type(error).__name__}: {printable(str(error), 100)}"
        fix = "leave the topic out of the mapping"
        raise DatasetError(
            f"The definition of {topic.type} cannot be read.", got=got, allowed="ros2msg, ros2idl", fix=fix
        ) from None


def header_stamp(message: Any) -> int | None:
    """Return the time stamp [ns] of a message's header, None without one, or if it is 0 as of a node that sets none."""
    stamp = _part(_part(message, "header"), "stamp")
    if stamp is None:
        return None
    whole, rest = (_part(stamp, name) for name in ("sec", "nanosec"))
    return int(whole) * 1_000_000_000 + int(rest) or None


def numbers_of(message: Any, field: str, names: Sequence[str] = ()) -> tuple[Array, tuple[str, ...]]:
    """Return the numbers of a field (D,) float64, and a label of each.

    Args:
        message: As decoded.
        field: Path such as "position", "pose.orientation" or "points.-1.positions"; empty for the whole message.
        names: Joints in the order that is wanted, for messages that name theirs.

    Quaternions come as (w, x, y, z). Raises DatasetError if there is no such field, no number in it, or a joint is missing.
    """
    value = message
    for part in field.split(".") if field else ():
        before, value = value, _part(value, part)
        if value is None:
            raise DatasetError(f"The message has no {field!r}.", got=", ".join(_parts(before)) or "nothing", fix="name a field")
    pairs = [*_flat(value, "")]
    if not pairs:
        what = f"The field {field!r} holds no numbers." if field else "The message holds no numbers."
        raise DatasetError(what, got=type(value).__name__, fix="name a field of numbers")
    joints = next((list(map(str, given)) for name in NAMES if (given := _part(message, name)) is not None), [])
    if len(joints) == len(pairs):
        pairs = [(joint, number) for joint, (_, number) in zip(joints, pairs, strict=True)]
    if names and joints:
        pairs = _ordered(pairs, names)
    return np.array([number for _, number in pairs], np.float64), tuple(label for label, _ in pairs)


def _ordered(pairs: list[tuple[str, float]], names: Sequence[str]) -> list[tuple[str, float]]:
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        raise DatasetError("The message names a joint twice.", got=", ".join(label for label, _ in pairs))
    if missing := [name for name in names if name not in by_name]:
        raise DatasetError(f"The message has no joint {missing[0]!r}.", got=", ".join(by_name), allowed=", ".join(names))
    return [(name, by_name[name]) for name in names]


def _part(value: Any, name: str) -> Any:
    """Return an attribute, entry or element of a message, None if there is none."""
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list | tuple | np.ndarray):
        if not name.removeprefix("-").isdigit() or not -len(value) <= int(name) < len(value):
            return None
        return value[int(name)]
    return getattr(value, name, None) if dataclasses.is_dataclass(value) else None


def _parts(value: Any) -> list[str]:
    if isinstance(value, list | tuple | np.ndarray):
        return [f"{len(value)} elements"]
    if isinstance(value, Mapping):
        return [*map(str, value)]
    if not _is_message(value):
        return []
    # rosbags keeps constants among the fields, which ROS writes in upper case, and the type
    return [name for name in (each.name for each in dataclasses.fields(value)) if name == name.lower() and name[0] != "_"]


def _is_message(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _flat(value: Any, label: str) -> Iterator[tuple[str, float]]:
    """Yield label and value of each number in a part of a message."""
    if isinstance(value, bool | int | float | np.number | np.bool_):
        yield label, float(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        yield from ((f"{label}.{index}".strip("."), float(number)) for index, number in enumerate(value.ravel().tolist()))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _flat(item, f"{label}.{index}".strip("."))
    elif isinstance(value, Mapping) or _is_message(value):
        parts = [name for name in _parts(value) if name not in LEFT_OUT]
        order = ["w", "x", "y", "z"] if sorted(parts) == ["w", "x", "y", "z"] else parts
        for name in order:
            yield from _flat(_part(value, name), f"{label}.{name}".strip("."))


def picture_of(message: Any, size: tuple[int, int] | None) -> Array:
    """Return a picture (H, W, 3) uint8 RGB of a sensor_msgs/Image or CompressedImage.

    Args:
        message: As decoded.
        size: Height and width [pixel] to which it is scaled; None leaves it.

    Raises:
        DatasetError: Its encoding is not known, or it is damaged.
    """
    import cv2

    picture = _compressed(message) if _part(message, "encoding") is None else _plain(message)
    if size is not None and picture.shape[:2] != size:
        is_smaller = size[0] * size[1] < picture.shape[0] * picture.shape[1]
        way = cv2.INTER_AREA if is_smaller else cv2.INTER_LINEAR
        picture = np.asarray(cv2.resize(picture, (size[1], size[0]), interpolation=way))
    return picture


def _plain(message: Any) -> Array:
    import cv2

    encoding, height, width, step = (_part(message, name) for name in ("encoding", "height", "width", "step"))
    if encoding not in CHANNELS:
        fix = "leave the topic out of the mapping: depth and pictures of 16 bits are not read"
        raise DatasetError("A picture has an unknown encoding.", got=repr(encoding), allowed=", ".join(CHANNELS), fix=fix)
    channels, conversion = CHANNELS[encoding]
    data = np.frombuffer(bytes(_part(message, "data")), np.uint8)
    if min(height, width) < 1 or step < width * channels or len(data) != step * height:
        got = f"{len(data)} bytes, {height} rows of {step} bytes with {width} pixels of {channels}"
        raise DatasetError("A picture has not as many bytes as it declares.", got=got, fix="leave the topic out, or this bag")
    rows = data.reshape(height, step)[:, : width * channels]
    picture = np.ascontiguousarray(rows.reshape((height, width, channels) if channels > 1 else (height, width)))
    try:
        return picture if conversion is None else np.asarray(cv2.cvtColor(picture, getattr(cv2, f"COLOR_{conversion}")))
    except cv2.error as error:
        raise DatasetError(f"A picture in {encoding} cannot be converted.", got=printable(str(error), 100)) from None


def _compressed(message: Any) -> Array:
    text = str(_part(message, "format"))
    if "compressedDepth" in text:
        fix = "leave the topic out of the mapping: depth is not read"
        raise DatasetError("A compressed picture cannot be read.", got=printable(text, 60), allowed="jpeg, png", fix=fix)
    return decoded(bytes(_part(message, "data")))
