"""TFRecord files and the examples in them, each checked by its checksums.

length (8)  masked CRC-32C of it (4)  tf.train.Example (length)  masked CRC-32C of it (4)      repeated, little-endian
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from robo_datasets.formats.recording import Array, require_file
from robo_rl.errors import DatasetError, optional

MASK = 0xA282EAD8
MOST_EXAMPLE = 1 << 31
"""Largest size [bytes] of one episode; protobuf reads no more."""
KINDS = {"bytes_list": ("BytesList", 12), "float_list": ("FloatList", 2), "int64_list": ("Int64List", 3)}
"""Field of tf.train.Feature -> its type, and protobuf's number of the type of its values."""
Values = Array | list[bytes]
Damage = Callable[[str], None]


def shards_in(folder: Path) -> list[Path]:
    """Return the TFRecord files of a folder in order; raises DatasetError for a link, or if there is none."""
    found = sorted(path for path in folder.iterdir() if ".tfrecord" in path.name)
    if links := [path for path in found if path.is_symlink()]:
        raise DatasetError(f"{links[0]} is a link.", allowed="files of the dataset itself", fix="put the file in its place")
    if not found:
        others = any(".array_record" in path.name or ".riegeli" in path.name for path in folder.iterdir())
        fix = "write it with file_format='tfrecord'" if others else "copy the shards, too"
        raise DatasetError(f"{folder} has no TFRecord files.", got="another file format" if others else "none", fix=fix)
    return found


def missing_shards(shards: list[Path]) -> list[str]:
    """Return the names of missing shards: NAME-00003-of-00010 tells how many there should be."""
    found: dict[tuple[str, int], set[int]] = {}
    for path in shards:
        if match := re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})", path.name):
            found.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    return [f"{name}-{n:05d}-of-{count:05d}" for (name, count), there in found.items() for n in {*range(count)} - there]


def examples(path: Path, damage: Damage) -> Iterator[dict[str, Values]]:
    """Yield the examples of a shard: name -> numbers or bytes.

    An example whose checksum is wrong is left out; behind a damaged length nothing can be found any more.

    Args:
        path: TFRecord file of the shard.
        damage: Receives a sentence on what is left out.
    """
    require_file(path)
    size, left_out = path.stat().st_size, 0
    with path.open("rb") as file:
        while head := file.read(12):
            length = int.from_bytes(head[:8], "little")
            is_whole = len(head) == 12 and _masked(head[:8]) == int.from_bytes(head[8:], "little")
            if not is_whole or length > MOST_EXAMPLE or file.tell() + length + 4 > size:
                words = "is cut off" if len(head) < 12 or is_whole else "is damaged"
                damage(f"{path.name} {words} behind {file.tell() - len(head)} of {size} bytes, and read as far as it goes")
                break
            content = file.read(length)
            if _masked(content) != int.from_bytes(file.read(4), "little"):
                left_out += 1
                continue
            yield _parsed(content, path)
    if left_out:
        damage(f"{path.name} has {left_out} episodes with wrong checksums, which are left out")


def _masked(content: bytes) -> int:
    with optional("Reading TFRecord files", "google_crc32c", "rlds"):
        import google_crc32c
    found: int = google_crc32c.value(content)
    return ((found >> 15 | found << 17) + MASK) & 0xFFFFFFFF


def _parsed(content: bytes, path: Path) -> dict[str, Values]:
    from google.protobuf.message import DecodeError

    example = _example()()
    try:
        example.ParseFromString(content)
    except DecodeError as error:
        raise DatasetError(f"{path} does not hold examples of TensorFlow.", got=error) from None
    return {name: _values(feature) for name, feature in example.features.feature.items()}


def _values(feature: Any) -> Values:
    if feature.HasField("bytes_list"):
        return [*feature.bytes_list.value]
    if feature.HasField("float_list"):
        return np.array(feature.float_list.value, np.float32)
    return np.array(feature.int64_list.value, np.int64)


@functools.cache
def _example() -> Any:
    """Return the class of tf.train.Example, made of its definition; TensorFlow is not needed."""
    with optional("Reading TFRecord files", "google", "rlds"):
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="robo_rl/example.proto", package="robo_rl.tensorflow", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, bool, str], to: Any = file.message_type) -> Any:
        found = to.add(name=name)
        for field, number, kind, is_repeated, of in fields:
            added = found.field.add(name=field, number=number, type=kind, label=3 if is_repeated else 1)
            if of:
                added.type_name = f".robo_rl.tensorflow.{of}"
        return found

    for kind, number in KINDS.values():
        message(kind, ("value", 1, number, True, ""))
    feature = message("Feature", *((name, at, 11, False, kind) for at, (name, (kind, _)) in enumerate(KINDS.items(), 1)))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message("Features", ("feature", 1, 11, True, "Features.FeatureEntry"))
    entry = message("FeatureEntry", ("key", 1, 9, False, ""), ("value", 2, 11, False, "Feature"), to=features.nested_type)
    entry.options.map_entry = True
    message("Example", ("features", 1, 11, False, "Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("robo_rl.tensorflow.Example"))
