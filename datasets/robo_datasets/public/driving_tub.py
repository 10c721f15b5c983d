"""Import recordings of a small car ("tub" of Donkeycar, version 2): a catalogue of JSON lines, and a JPEG picture per line."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import cv2
import numpy as np

from robo_datasets.formats.recording import Actions, Array, Foreign, Recording
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec

PIECE = 100
"""number of steps of an episode; the drive is cut into episodes in its order, so that these can be split by time"""
MOST_BYTES = 1 << 20
"""[byte] largest file in the archive"""
CAMERA = "camera_front"


class DrivingTub:
    """Reader of a tub in a tar.gz archive."""

    name = "donkeycar"

    def read(self, source: Path) -> Foreign:
        """Read an archive with a tub of Donkeycar; raises DatasetError if it is none, or damaged."""
        try:
            members = _members(source)
            rows = [
                json.loads(line) for name in sorted(members) if name.endswith(".catalog") for line in members[name].splitlines()
            ]
            rows = sorted((row for row in rows if row["user/mode"] == "user"), key=lambda row: int(row["_index"]))
            pictures = np.stack([_picture(members[row["cam/image_array"]]) for row in rows])
            commands = np.array([[row["user/angle"], row["user/throttle"]] for row in rows], np.float64)
        except (tarfile.TarError, zlib.error, OSError, EOFError, KeyError, TypeError, ValueError, cv2.error) as error:
            raise DatasetError(f"{source} is no tub of Donkeycar.", got=f"{type(error).__name__}: {str(error)[:200]}") from None
        notes = (f"{len(rows)} pictures in {len(rows) // PIECE} pieces of {PIECE}: a drive has no episodes", NO_TIMES)
        camera = ArraySpec(CAMERA, pictures.shape[1:], "uint8", 0, 255, role="image")
        limits = ((-1.0, -1.0), (1.0, 1.0))
        return Foreign(lambda: _pieces(pictures, commands), ObservationSpec((camera,)), Actions(2, *limits), notes=notes)


FORMAT = DrivingTub()
NO_TIMES = "the file's times are those of its conversion, 3 ms apart, and are left out"


def spec_of(height: int, width: int) -> EnvironmentSpec:
    """Return the spec of the car: its camera, and the commands of a person."""
    camera = ArraySpec(CAMERA, (height, width, 3), "uint8", 0, 255, role="image")
    units = ("1", "1")
    action = ActionSpec(("steering", "throttle"), (-1.0, -1.0), (1.0, 1.0), units, "drive")
    return EnvironmentSpec("imported/donkeycar", ObservationSpec((camera,)), action)


def _members(source: Path) -> Mapping[str, bytes]:
    """Return file name -> content of the plain files of an archive; nothing is unpacked."""
    found: dict[str, bytes] = {}
    with tarfile.open(source, "r:gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if member.isfile() and not name.startswith("._"):
                if member.size > MOST_BYTES:
                    raise ValueError(f"{member.name} has {member.size} bytes")
                content = archive.extractfile(member)
                assert content is not None
                found[name] = content.read()
    return found


def _picture(content: bytes) -> Array:
    """Decode a JPEG picture to (H, W, 3) uint8, RGB; raises ValueError if it is damaged."""
    found: Any = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)
    if found is None:
        raise ValueError("a picture that cannot be read")
    return np.asarray(found)


def _pieces(pictures: Array, commands: Array) -> Iterator[Recording]:
    """Yield the drive as episodes of PIECE steps; the last observation of an episode is the first picture of the next."""
    for start in range(0, len(commands) - 1, PIECE):
        stop = min(start + PIECE, len(commands) - 1)
        yield Recording(
            {CAMERA: pictures[start : stop + 1]},
            commands[start:stop],
            terminated=False,
            truncated=True,
            name=f"of pictures {start} to {stop}",
        )
