"""Videos of cameras, many episodes in a file, encoded like LeRobot's: AV1, or H.264 if there is no AV1 encoder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from robo_datasets.formats.recording import Array, require_file
from robo_datasets.packed_pictures import most_pixels
from robo_rl.errors import DatasetError, optional
from robo_rl.system.threads import ordinary_scheduling

with optional("The format lerobot", "av", "formats"):
    import av
    from av.video.stream import VideoStream

GROUP = 1
"""number of frames from one key frame to the next. lerobot 0.4.4 has 2, with which AV1 copies the previous frame where little
moves, so that a state gets the picture of the state before. With 1, videos are about a third larger"""
QUALITY = 30
"""constant rate factor, as in lerobot 0.4.4"""
FASTEST = 12
"""preset of SVT-AV1, as in lerobot 0.4.4"""


def encoder() -> str:
    """Return the name of FFmpeg's encoder that is used: AV1, or H.264 if PyAV has no AV1 encoder."""
    return "libsvtav1" if "libsvtav1" in av.codecs_available else "libx264"


class Film:
    """Writer of one video file of RGB frames of `height` x `width` pixels, `rate` frames per second."""

    def __init__(self, path: Path, rate: float, height: int, width: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("SVT_LOG", "1")  # SVT-AV1 prints its settings to the terminal otherwise
        self.frames, self._path = 0, path
        exact = Fraction(rate).limit_denominator(100_000)
        self._unit = 1 / exact
        self._container = av.open(str(path), "w")
        options = {"crf": str(QUALITY), "g": str(GROUP)}
        options |= {"preset": str(FASTEST), "svtav1-params": "lp=1"} if encoder() == "libsvtav1" else {"bf": "0"}
        self._stream = cast(VideoStream, self._container.add_stream(encoder(), rate=exact, options=options))
        self._stream.height, self._stream.width, self._stream.pix_fmt = height, width, "yuv420p"
        self._stream.time_base = self._unit
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add(self, pictures: Array) -> None:
        """Append pictures (T, H, W, 3) uint8, RGB."""
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = self.frames, self._unit
            with nullcontext() if self.frames else ordinary_scheduling():  # the encoder opens with the first frame
                packets = self._stream.encode(frame)
            self._container.mux(packets)
            self.frames += 1

    @property
    def megabytes(self) -> float:
        """Size [MiB] of the file so far."""
        return self._path.stat().st_size / 2**20 if self._path.exists() else 0.0

    def close(self) -> None:
        """Flush the encoder and close the file."""
        if self._is_open:
            self._container.mux(self._stream.encode())
            self._container.close()
            self._is_open = False


def film_facts(path: Path) -> dict[str, Any]:
    """Return the facts about a video file that LeRobot stores in info.json."""
    with av.open(str(path), format="mp4") as container:
        stream = container.streams.video[0]
        codec = stream.codec_context.codec.canonical_name
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": codec,
            "video.pix_fmt": stream.codec_context.pix_fmt,
            "video.is_depth_map": False,
            "video.fps": int(stream.base_rate or 0),
            "video.channels": 3,
            "has_audio": False,
        }


def read_film(path: Path, times: Array, rate: float, shape: tuple[int, ...]) -> Array:
    """Return the pictures of a video at some times.

    Args:
        path: The video file.
        times: (T,) [s] Rising times.
        rate: [1/s] Frame rate.
        shape: Shape (H, W, 3) of a picture.

    Returns:
        Pictures (T, H, W, 3) uint8, RGB.

    Raises:
        DatasetError: The video cannot be decoded, lacks a picture, or has another size.
    """
    places = {frame: place for place, frame in enumerate(np.rint(times * rate).astype(np.int64).tolist())}
    pictures = np.zeros((len(times), *shape), np.uint8)
    last = max(places)
    found = 0
    try:
        for index, frame in _frames(path, float(times[0]), rate, shape):
            if (place := places.pop(index, None)) is not None:
                pictures[place] = frame.to_ndarray(format="rgb24")
                found += 1
            if not places or index >= last:
                break
    except (av.FFmpegError, IndexError) as error:
        raise DatasetError(
            f"{path} cannot be decoded.", got=f"{type(error).__name__}: {error}", allowed="a film in MP4", fix="copy it again"
        ) from error
    if places:
        raise DatasetError(f"{path} has not all frames.", got=f"{found} from {times[0]:.3f} s on", allowed=len(times))
    return pictures


def _frames(path: Path, start: float, rate: float, shape: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
    require_file(path)
    with av.open(str(path), format="mp4") as container:  # other formats can refer to further files
        stream = container.streams.video[0]
        if (stream.height, stream.width, 3) != shape:  # before a frame of that size is decoded
            raise DatasetError(f"{path} has another size.", got=f"{stream.height} x {stream.width}", allowed=shape)
        stream.codec_context.options = most_pixels(stream.height, stream.width)
        stream.thread_type = "AUTO"
        if stream.time_base is None:
            raise DatasetError(f"{path} has no time.")
        container.seek(max(0, int((start - 1 / rate) / float(stream.time_base))), stream=stream, backward=True)
        for frame in container.decode(stream):
            if frame.pts is not None and (frame.height, frame.width) == shape[:2]:
                yield round(float(frame.pts * stream.time_base) * rate), frame
