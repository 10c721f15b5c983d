"""Lossy compression of an episode's pictures: JPEG frame by frame, or an AV1 video.

Packed pictures differ slightly from those that the policy saw. By default a dataset keeps pictures exactly.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import EpisodeCorrupt, InvalidSetting, optional, require_allowed
from robo_rl.system.threads import ordinary_scheduling

Pictures = npt.NDArray[np.uint8]
"""Pictures (T, H, W, 3), RGB"""
Bytes = npt.NDArray[np.uint8]
"""Array of bytes (N,), uint8."""
MOST_BYTES = 1 << 36
"""[byte] largest size of the unpacked pictures of an episode, 64 GiB, as in hdf5_arrays.Allowance"""
MOST_UNPACKED = {"jpeg": 2_000, "av1": 100_000}
"""largest ratio of unpacked to packed bytes; pictures of one colour, 1920 x 1080, reach 350 and 60,000"""
PADDED, MARGIN = 2, 1 << 16
"""a decoder may take frames of PADDED times the declared pixels plus MARGIN, since codecs fill frames up to whole blocks"""


class Packing(Protocol):
    """Protocol of a lossy compression of the pictures of a camera."""

    name: str

    def pack(self, pictures: Pictures) -> list[bytes]:
        """Return the encoded pictures: one part per frame, or one part for all frames."""


@dataclass(frozen=True)
class JPEG(Packing):
    """Compression to one JPEG per frame, with colours in full resolution. Frames can be decoded one by one."""

    name = "jpeg"
    quality: int = 95
    """quality, 1 to 100; the default is OpenCV's"""

    def __post_init__(self) -> None:
        require_allowed(self, {"quality": (1 <= self.quality <= 100, "1 to 100")})

    @override
    def pack(self, pictures: Pictures) -> list[bytes]:
        import cv2  # here and below: reading a catalogue needs no codec

        options = [cv2.IMWRITE_JPEG_QUALITY, self.quality]
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
        return [cv2.imencode(".jpg", cv2.cvtColor(each, cv2.COLOR_RGB2BGR), options)[1].tobytes() for each in pictures]


@dataclass(frozen=True)
class AV1(Packing):
    """Compression to one video per episode and camera. It is the smallest, but must be decoded from its beginning."""

    name = "av1"
    quality: int = 30
    """constant rate factor, 1 to 63, of which a lower one gives better pictures; the default is LeRobot's"""

    def __post_init__(self) -> None:
        require_allowed(self, {"quality": (1 <= self.quality <= 63, "1 to 63")})

    @override
    def pack(self, pictures: Pictures) -> list[bytes]:
        """Return one part with all frames; raises InvalidSetting if PyAV has no AV1 encoder, MissingExtra without PyAV."""
        with optional("Pictures packed as AV1", "av", "films"):
            import av

        if "libsvtav1" not in av.codecs_available:
            raise InvalidSetting("PyAV came without an encoder of AV1.", fix="pip install av from PyPI, or --pictures jpeg")
        os.environ.setdefault("SVT_LOG", "1")  # SVT-AV1 prints its settings to the terminal otherwise
        film = io.BytesIO()
        with av.open(film, "w", format="mp4") as container:
            options = {"crf": str(self.quality), "preset": "8", "svtav1-params": "lp=1"}
            stream: Any = container.add_stream("libsvtav1", rate=Fraction(30), options=options)
            stream.height, stream.width, stream.pix_fmt = *pictures.shape[1:3], "yuv420p"
            for index, picture in enumerate(pictures):
                with nullcontext() if index else ordinary_scheduling():  # the encoder opens with the first frame
                    packets = stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24"))
                container.mux(packets)
            container.mux(stream.encode())
        return [film.getvalue()]


PACKINGS: Mapping[str, type[JPEG] | type[AV1]] = {"jpeg": JPEG, "av1": AV1}
EXACT = "exact"


def packing(words: str) -> Packing | None:
    """Return the packing of "jpeg", "jpeg:90", "av1" or "av1:35", None for "exact"; raises InvalidSetting."""
    name, has_quality, quality = words.partition(":")
    if words == EXACT:
        return None
    if name not in PACKINGS or (has_quality and not quality.isdecimal()):
        raise InvalidSetting(
            "Unknown way to keep pictures.", got=words, allowed="exact, jpeg, av1, or with a quality: jpeg:90, av1:35"
        )
    return PACKINGS[name](int(quality)) if has_quality else PACKINGS[name]()


def packed(pictures: Pictures, how: Packing) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Compress pictures; return all parts joined (N,), and the end of each part in it (parts,)."""
    parts = how.pack(pictures)
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([len(part) for part in parts])


def unpacked(name: str, content: Bytes, ends: npt.NDArray[np.int64], shape: tuple[int, ...]) -> Pictures:
    """Decompress pictures.

    Args:
        name: Name of the compression.
        content: All parts, joined (N,).
        ends: End of each part in `content`.
        shape: Shape (T, H, W, 3) that the pictures must have.

    Returns:
        Pictures (T, H, W, 3), RGB.

    Raises:
        EpisodeCorrupt: The parts are damaged or have another shape. A hostile shape is refused before memory is allocated.
    """
    size = math.prod(shape)
    if name not in PACKINGS or len(shape) != 4 or size > min(MOST_BYTES, MOST_UNPACKED[name] * content.size):
        raise EpisodeCorrupt(
            "Packed pictures contradict the file's header.",
            got=f"{name}: {list(shape)} in {content.size} bytes",
            allowed=f"{', '.join(PACKINGS)}, and at most these multiples of the packed bytes: {MOST_UNPACKED}",
        )
    frames = _frames_of_jpegs(content, ends, shape) if name == "jpeg" else _frames_of_film(content, shape)
    pictures = np.empty(shape, np.uint8)
    count = 0
    for frame in frames:
        if count == len(pictures) or frame.shape != shape[1:]:
            raise EpisodeCorrupt("Packed pictures have another number or size.", got=list(frame.shape), allowed=list(shape))
        pictures[count], count = frame, count + 1
    if count != len(pictures):
        raise EpisodeCorrupt("Packed pictures are missing.", got=count, allowed=len(pictures))
    return pictures


def _frames_of_jpegs(content: Bytes, ends: npt.NDArray[np.int64], shape: tuple[int, ...]) -> Iterator[Pictures]:
    import cv2

    starts = np.concatenate(([0], ends[:-1]))
    if len(ends) != shape[0] or (ends <= starts).any() or ends[-1] != content.size or starts.min() < 0:
        raise EpisodeCorrupt("The packed pictures are not one after the other.", got=f"{len(ends)} parts", allowed=shape[0])
    for start, end in zip(starts, ends, strict=True):
        part = content[start:end]
        if size_of_jpeg(part.tobytes()) != shape[1:3]:  # before decoding: it may declare 65,535 x 65,535
            raise EpisodeCorrupt("A packed picture is not a JPEG of this size.", got=f"{len(part)} bytes", allowed=shape[1:3])
        frame = cv2.imdecode(part, cv2.IMREAD_COLOR)
        if frame is None:
            raise EpisodeCorrupt("A packed picture cannot be decoded.", got=f"{len(part)} bytes", allowed="JPEG")
        yield np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), np.uint8)


def size_of_jpeg(part: bytes) -> tuple[int, int] | None:
    """Return height and width [pixel] from the frame header of a JPEG (ITU T.81, B.2.2); None if there is no header."""
    place = 2 if part[:2] == b"\xff\xd8" else len(part)
    while place + 9 <= len(part) and part[place] == 0xFF:
        marker, length = part[place + 1], int.from_bytes(part[place + 2 : place + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(part[place + 5 : place + 7], "big"), int.from_bytes(part[place + 7 : place + 9], "big")
        place += 2 + max(length, 2)
    return None


def most_pixels(height: int, width: int) -> dict[str, str]:
    """Return the options with which a decoder refuses frames that are much larger than height and width [pixel] say."""
    return {"max_pixels": str(PADDED * height * width + MARGIN)}


def _frames_of_film(content: Bytes, shape: tuple[int, ...]) -> Iterator[Pictures]:
    with optional("Pictures packed as AV1", "av", "films"):
        import av

    try:
        with av.open(io.BytesIO(content.tobytes()), "r", format="mp4") as container:
            stream = container.streams.video[0]
            size = (stream.height, stream.width)
            if size != shape[1:3]:  # before a frame of that size is decoded
                raise EpisodeCorrupt("The film of a camera has another size.", got=size, allowed=shape[1:3])
            stream.codec_context.options = most_pixels(*size)
            for frame in container.decode(stream):
                yield np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    except av.error.MemoryError:  # which says nothing about the film
        raise
    except (av.FFmpegError, IndexError) as error:
        raise EpisodeCorrupt("The film of a camera cannot be decoded.", got=error, allowed="AV1 in MP4") from error
