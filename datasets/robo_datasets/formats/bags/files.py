"""Messages as the files of a bag hold them, MCAP or SQLite, whole or torn by a recorder that was killed.

Files are read from their beginning without index, summary or metadata.yaml, so a whole file and a torn one take the same way.
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from robo_datasets.formats.recording import require_file
from robo_rl.errors import DatasetError, optional, printable

MCAP, SQLITE = b"\x89MCAP0\r\n", b"SQLite format 3\x00"
SUFFIXES = {".mcap": MCAP, ".db3": SQLITE}
METADATA = "metadata.yaml"
ZSTD = b"\x28\xb5\x2f\xfd"
MOST_UNPACKED = 1 << 30
"""Largest size [bytes] of an unpacked chunk or message; recorders take a few megabytes."""
DEEPEST = 2
"""Number of levels of folders in which bags are sought."""
NO_END = "has no end, as of a recorder that was killed: it is read as far as it goes"
Damage = Callable[[str], None]


@dataclass(frozen=True)
class Topic:
    """Topic of a bag file: its name, and the type and encoding of its messages."""

    name: str
    type: str
    """Type of the messages, such as sensor_msgs/msg/JointState."""
    encoding: str = "cdr"
    """serialization of the messages, such as cdr, which is ROS 2's"""
    language: str = ""
    """Language in which the definition of the message type is written: ros2msg or ros2idl."""
    definition: str = ""
    """text that defines the message type and all types in it; empty if the file has none"""


@dataclass(frozen=True)
class RawMessage:
    """Message of a bag file, not yet decoded."""

    topic: Topic
    logged: int
    """[ns] time at which the recorder received the message"""
    data: bytes


@dataclass(frozen=True)
class Bag:
    """Bag of ROS: the files of one recording, in the order in which they were recorded."""

    name: str
    files: tuple[Path, ...]

    def messages(self, damage: Damage = lambda words: None) -> Iterator[RawMessage]:
        """Yield the messages in the order of the files.

        Args:
            damage: Receives a sentence on each file that is not whole.

        Raises:
            DatasetError: A file is neither MCAP nor SQLite.
        """
        for path in self.files:
            require_file(path)
            with path.open("rb") as file:
                start = file.read(len(SQLITE))
            read = _mcap if start.startswith(MCAP) else _sqlite if start == SQLITE else None
            if read is None:
                got = "an empty file" if not start else repr(start)
                raise DatasetError(f"{path} is no MCAP and no SQLite file.", got=got, fix="leave it out, or copy it again")
            yield from read(path, lambda words, name=path.name: damage(f"{name} {words}"))  # type: ignore[misc]


def is_bag(source: Path) -> bool:
    """Return whether a file or folder looks like a bag, or a folder of bags; never raises."""
    try:
        return any(_is_bag_file(path) for path in ([source] if source.is_file() else _files_in(source)))
    except (OSError, DatasetError):
        return False


def bags_in(source: Path) -> list[Bag]:
    """Return the bags of a file or folder in the order of their names, bag_10 after bag_9.

    Files of one folder are one bag if it has a metadata.yaml, or if they are numbered parts of one name, as recorders write
    them; otherwise each is a bag. Raises DatasetError if there is none, or for a link.
    """
    if source.is_file():
        return [Bag(source.name, (source,))]
    folders: dict[Path, list[Path]] = {}
    for path in _files_in(source):
        if path.suffix in SUFFIXES:
            folders.setdefault(path.parent, []).append(path)
    found: list[Bag] = []
    for folder, files in sorted(folders.items(), key=lambda item: _natural(item[0])):
        ordered = sorted(files, key=_natural)
        stems = {re.sub(r"_\d+$", "", path.stem) for path in ordered}
        is_one = (folder / METADATA).is_file() or len(stems) == 1
        name = folder.name if folder != source else source.name
        found += [Bag(name, tuple(ordered))] if is_one else [Bag(path.name, (path,)) for path in ordered]
    if not found:
        fix = "unpack files .zstd with zstd -d, and bags of ROS 1 with rosbags-convert"
        raise DatasetError(f"{source} has no bags.", allowed="files .mcap or .db3, at most two folders deep", fix=fix)
    return found


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its folders; raises DatasetError for a link."""
    levels = [folder]
    for _ in range(DEEPEST + 1):
        inside = [path for level in levels for path in sorted(level.iterdir())]
        for path in inside:
            if path.is_symlink() and path.suffix in SUFFIXES:
                raise DatasetError(f"{path} is a link.", allowed="files of the bag itself", fix="put the file in its place")
        yield from (path for path in inside if path.is_file())
        levels = [path for path in inside if path.is_dir() and not path.is_symlink()]


def _is_bag_file(path: Path) -> bool:
    magic = SUFFIXES.get(path.suffix)
    if magic is None or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts bag_10 behind bag_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _mcap(path: Path, damage: Damage) -> Iterator[RawMessage]:
    with optional("Reading MCAP files", "mcap", "ros"):
        from mcap.exceptions import McapError
        from mcap.records import Channel, Message, Schema
    schemas: dict[int, Any] = {}
    topics: dict[int, Topic] = {}
    with path.open("rb") as file:
        try:
            for record in _mcap_records(_Bounded(file, path.stat().st_size), damage):
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    topics[record.id] = _topic_of(record, schemas.get(record.schema_id))
                elif isinstance(record, Message) and record.channel_id in topics:
                    yield RawMessage(topics[record.channel_id], record.log_time, record.data)
        except (McapError, struct.error, ValueError, EOFError) as error:
            is_torn = type(error).__name__ == "EndOfFile"
            damage(NO_END if is_torn else f"is damaged, and read as far as it goes ({printable(str(error), 100)})")


@dataclass(frozen=True)
class _Bounded:
    """File from which no more is read than it has: a damaged length would allocate terabytes."""

    file: IO[bytes]
    size: int

    def read(self, count: int) -> bytes:
        """Return at most `count` bytes."""
        return self.file.read(min(count, self.size))


def _mcap_records(file: Any, damage: Damage) -> Iterator[Any]:
    """Yield the records of a file, those of chunks included; a chunk that cannot be unpacked is left out."""
    import zstandard
    from mcap.exceptions import McapError
    from mcap.records import Chunk
    from mcap.stream_reader import StreamReader, breakup_chunk

    left_out = 0
    try:
        for record in StreamReader(file, emit_chunks=True, record_size_limit=file.size).records:
            if not isinstance(record, Chunk):
                yield record
                continue
            try:
                declared = zstandard.frame_content_size(record.data) if record.compression == "zstd" else 0
                if max(declared, record.uncompressed_size) > MOST_UNPACKED:
                    raise ValueError("a chunk declares more than it may hold")
                inside = breakup_chunk(record, validate_crc=True)
            except (McapError, struct.error, ValueError, RuntimeError, EOFError, zstandard.ZstdError):
                left_out += 1
            else:
                yield from inside
    finally:
        if left_out:
            damage(f"has {left_out} damaged chunks of messages, which are left out")


def _topic_of(channel: Any, schema: Any) -> Topic:
    text = "" if schema is None else schema.data.decode(errors="replace")
    language = "" if schema is None else schema.encoding
    return Topic(channel.topic, "" if schema is None else schema.name, channel.message_encoding, language, text)


def _sqlite(path: Path, damage: Damage) -> Iterator[RawMessage]:
    """Yield the messages of a database, those of its write-ahead log included; nothing of it is changed."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise DatasetError(f"{path} cannot be opened.", got=error, fix="look at its permissions") from None
    with closing(connection):
        try:
            connection.text_factory = lambda text: text.decode(errors="replace")
            topics = _sqlite_topics(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            fix = "a bag needs the tables topics and messages; if it was recorded just now, copy its -wal file, too"
            raise DatasetError(f"{path} is no bag of ROS 2.", got=error, fix=fix) from None
        if path.with_name(path.name + "-wal").is_file():
            damage("was not closed, as by a recorder that was killed: its write-ahead log is read with it")
        elif path.stat().st_size < (declared := _declared_size(path)):  # SQLite would read the missing bytes as zeros
            got, fix = (
                f"{path.stat().st_size} bytes",
                "copy it again; or save what is left: sqlite3 FILE .recover | sqlite3 NEW.db3",
            )
            raise DatasetError(f"{path} is cut off.", got=got, allowed=f"{declared} bytes", fix=fix)
        wrong = 0
        try:
            for topic, stamp, data in connection.execute("SELECT topic_id, timestamp, data FROM messages ORDER BY id"):
                if topic in topics and isinstance(stamp, int) and isinstance(data, bytes):
                    yield RawMessage(topics[topic], stamp, _unpacked(data))
                else:
                    wrong += 1
        except sqlite3.Error as error:
            damage(f"is damaged, and read as far as it goes ({error})")
        if wrong:
            damage(f"has {wrong} rows that are no messages, which are left out")


def _declared_size(path: Path) -> int:
    """Return the size [bytes] of a SQLite database according to its header: page size times number of pages."""
    with path.open("rb") as file:
        header = file.read(32)
    size = int.from_bytes(header[16:18])
    return (65536 if size == 1 else size) * int.from_bytes(header[28:32])


def _sqlite_topics(connection: sqlite3.Connection) -> Mapping[int, Topic]:
    has_definitions = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'message_definitions'").fetchone()[0]
    columns = "topic_type, encoding, encoded_message_definition"
    known = connection.execute(f"SELECT {columns} FROM message_definitions").fetchall() if has_definitions else []
    definitions = {kind: (language, text) for kind, language, text in known}
    rows = connection.execute("SELECT id, name, type, serialization_format FROM topics").fetchall()
    return {number: Topic(name, kind, encoding, *definitions.get(kind, ("", ""))) for number, name, kind, encoding in rows}


def _unpacked(data: bytes) -> bytes:
    """Return a message, unpacked if the recorder compressed each by itself."""
    if not data.startswith(ZSTD):
        return data
    import zstandard

    try:
        if 0 <= zstandard.frame_content_size(data) <= MOST_UNPACKED:
            return zstandard.decompress(data, MOST_UNPACKED)
    except zstandard.ZstdError:
        pass
    return data
