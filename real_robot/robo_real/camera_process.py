"""Process of a camera: it reads the device, checks, crops and scales the pictures, and sends them to the arm's process.

A camera driver that hangs or crashes then ends only this process, and the guard runs on without the pictures. A process that
dies is replaced by another one. It ends with the arm's process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from robo_real.cameras import FAULTS, Camera, CameraDevice, Frame, Picture
from robo_real.clock import Clock
from robo_real.priority import drop_realtime
from robo_rl.entry_points import load_named
from robo_rl.errors import CameraChanged, CameraFault, CameraFrozen, InvalidSetting, RoboRLError, UnknownName, require_allowed
from robo_rl.settings import plain, settings_as
from robo_rl.system.supervised_process import SupervisedProcess, ending, inherited

OPEN = 30.0
"""[s] longest time to start the process, open the device and take the first picture"""
REOPEN = 0.5
"""Pause [s] between two attempts to open a device, and before a new process is started."""
STOP = 1.0
"""[s] longest time for the process to end before it is killed"""


@dataclass(frozen=True)
class CameraSettings:
    """Settings that cameras of every kind have."""

    kind: str = "opencv"
    """kind of camera: name of an entry point in robo_rl.cameras, or package.module:Class"""
    image_size: int = 128
    """[pixel] height and width of the served pictures, 8 to 960"""
    crop: tuple[int, int, int, int] | None = None
    """[pixel] left, top, width and height of the square of the device's picture that is served; None for the largest square in
    the middle"""
    rotate: Literal[0, 90, 180, 270] = 0
    """[degree] counterclockwise rotation of the picture, after cropping"""
    frozen_after: float = 0.25
    """[s] of identical pictures or time stamps until the camera counts as frozen, 0 to 10; 0 allows identical pictures"""
    reference: Path | None = None
    """PNG of a served picture, with which every picture is compared to notice that cameras were swapped, moved or covered;
    None for no comparison"""
    reference_region: tuple[int, int, int, int] | None = None
    """[pixel] left, top, width and height of the compared part, in which nothing may move; None for the whole picture"""
    reference_least: float = 0.6
    """least correlation between the brightness of the picture and of the reference, -1 to 1"""

    def __post_init__(self) -> None:
        allowed = {
            "image_size": (8 <= self.image_size <= 960, "8 to 960"),
            "crop": (self.crop is None or (_is_area(self.crop) and self.crop[2] == self.crop[3]), "a square [left, top, n, n]"),
            "frozen_after": (0 <= self.frozen_after <= 10, "0 to 10 [s]"),
            "reference": (self.reference is not None or self.reference_region is None, "a PNG, if there is a reference_region"),
            "reference_region": (
                self.reference_region is None or _is_area(self.reference_region, self.image_size),
                "[left, top, width, height] within the served picture",
            ),
            "reference_least": (-1 <= self.reference_least <= 1, "-1 to 1"),
        }
        require_allowed(self, allowed)


@dataclass(frozen=True)
class CameraOptions:
    """All settings of one camera: those of every kind, and those of its own kind."""

    common: CameraSettings
    """settings that cameras of every kind have"""
    device: Any
    """settings of the kind of camera, an instance of its `options`"""

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any] | int | str, image_size: int) -> CameraOptions:
        """Return the settings of a camera from what a user has given.

        Args:
            name: Name of the camera, for errors.
            given: Name -> value of settings, or the number or path of an OpenCV device.
            image_size: [pixel] Height and width of the pictures if `given` has none.

        Raises:
            UnknownName: There is no such kind of camera, or no such setting.
            InvalidSetting: A setting is impossible, or the reference is no picture of the camera's size.
        """
        if not isinstance(given, Mapping):
            given = {"device": given}
        common = {field.name for field in fields(CameraSettings)}
        settings = settings_as(
            CameraSettings,
            {"image_size": image_size} | {key: value for key, value in given.items() if key in common},
            source=f"camera {name}",
        )
        if settings.reference is not None:
            read_reference(settings)
        kind = load_named("cameras", f"camera {name}: kind", settings.kind).options
        own = {key: value for key, value in given.items() if key not in common}
        for key in own:
            if key not in (known := [field.name for field in fields(kind)]):
                raise UnknownName(f"setting of camera {name}:", str(key), [*sorted(common), *known])
        return cls(settings, settings_as(kind, own, source=f"camera {name} of the kind {settings.kind}"))

    def to_json(self) -> str:
        """Return the settings as the JSON that the camera's process reads."""
        return json.dumps({**plain(self.common), **plain(self.device)}, default=str)


class CameraProcess(Camera):
    """Camera whose device is read by a separate process, so that a hanging device delays nothing else."""

    def __init__(
        self, name: str, options: CameraOptions, clock: Clock, notify: Callable[[str, str], object] | None = None
    ) -> None:
        """Start the process and wait for the first picture.

        Args:
            name: Name of the camera.
            options: Settings of the camera.
            clock: Clock of the robot, by which pictures are stamped.
            notify: Called with the camera's name and the message of each fault.

        Raises:
            CameraFault: There is no picture within OPEN seconds.
        """
        self.name, self._options, self._clock = name, options, clock
        self._notify = notify or _nothing
        self._frame: Frame | None = None
        self._fault: CameraFault | None = None
        self._has_news, self._done = threading.Event(), threading.Event()
        self._has_ended = threading.Event()
        self._process = self._start()
        self._replacing = threading.Thread(target=self._replace, name=f"camera {name}", daemon=True)
        self._replacing.start()
        self._has_news.wait(OPEN)
        if self._frame is None:
            fault = self._fault or CameraFault(f"The camera {name!r} gives no picture.", got=f"none in {OPEN} s")
            self.close()
            raise fault

    @property
    def pid(self) -> int:
        """Process id of the camera's present process."""
        return self._process.pid

    @override
    def newest(self) -> Frame:
        fault, frame = self._fault, self._frame
        if fault is not None:
            raise type(fault)(str(fault))
        if frame is None:
            raise CameraFault(f"The camera {self.name!r} has not delivered a picture yet.")
        return frame

    @override
    def close(self) -> None:
        self._done.set()
        self._has_ended.set()
        self._replacing.join()

    def _start(self) -> SupervisedProcess:
        command = [sys.executable, "-m", __name__, self.name, self._options.to_json()]
        return SupervisedProcess(command, on_message=self._receive)

    def _replace(self) -> None:
        """Replace the process each time it has ended, until the camera is closed."""
        while not self._done.is_set():
            self._has_ended.wait()
            status = self._process.stop(STOP)
            if self._done.wait(REOPEN):
                return
            self._has_ended.clear()
            self._notify(self.name, f"the process of the camera {self.name!r} is replaced: {ending(status)}")
            self._process = self._start()

    def _receive(self, message: bytes | None) -> None:
        if message is None:
            if not self._done.is_set():
                self._fail(CameraFault(f"The process of the camera {self.name!r} has ended.", fix="look at its cable"))
            self._has_ended.set()
            return
        head, _, pixels = message.partition(b"\n")
        facts = json.loads(head)
        if "fault" in facts:
            self._fail(FAULTS[facts["fault"]](f"Camera {self.name!r}: {facts['text']}"))
            return
        picture = np.frombuffer(pixels, np.uint8).reshape(facts["shape"])
        stamp = self._clock.now() - (time.monotonic() - facts["exposed"])
        first = self._frame.identity if self._frame else facts["identity"]
        if facts["identity"] != first:
            self._fail(
                CameraChanged(
                    f"Another device is plugged in as the camera {self.name!r}.",
                    got=facts["identity"],
                    allowed=first,
                    fix="plug the first one in again; if the change is meant, serve the robot again",
                )
            )
            return
        self._frame = Frame(picture, stamp, self._frame.number + 1 if self._frame else 1, first)
        self._fault = None
        self._has_news.set()

    def _fail(self, fault: CameraFault) -> None:
        is_new = str(fault) != str(self._fault)
        self._fault = fault
        self._has_news.set()
        if is_new:
            self._notify(self.name, str(fault))


class CheckedPictures:
    """Source of the pictures of an open device, which are checked, cropped and scaled."""

    def __init__(self, device: CameraDevice, settings: CameraSettings) -> None:
        self.device, self._settings = device, settings
        self._reference = None if settings.reference is None else read_reference(settings)
        self._shape: tuple[int, ...] | None = None
        self._last: tuple[Picture, float] | None = None
        self._unlike_since: float | None = None

    def read(self) -> tuple[Picture, float]:
        """Wait for the next new picture.

        Returns:
            The picture (image_size, image_size, 3) uint8, RGB, and the time [s] of its exposure by time.monotonic().

        Raises:
            CameraFault: The device gives no picture, is frozen, has changed its pictures, or does not show the reference.
        """
        while True:
            picture, exposed = self.device.read()
            self._shape = self._shape or picture.shape
            if picture.shape != self._shape:
                raise CameraChanged(
                    "The device has changed its pictures.",
                    got=picture.shape,
                    allowed=self._shape,
                    fix="does another program set it? serve the robot again if the change is meant",
                )
            if not self._is_repeated(picture, exposed):
                break
        served = self._served(picture)
        self._require_like_reference(served, exposed)
        return served, exposed

    def _is_repeated(self, picture: Picture, exposed: float) -> bool:
        """Return whether the device has repeated a picture or its time; raises CameraFrozen if this lasts too long."""
        limit, last = self._settings.frozen_after, self._last
        if not limit or last is None or (exposed > last[1] and not np.array_equal(picture, last[0])):
            self._last = picture, exposed
            return False
        same = time.monotonic() - last[1]
        if same > limit:
            raise CameraFrozen(
                "It is frozen.",
                got=f"the same picture for {same:.2f} s",
                allowed=f"at most {limit} s",
                fix="plug it in again; frozen_after: 0 allows a camera without noise, such as a drawn one",
            )
        return True

    def _served(self, picture: Picture) -> Picture:
        import cv2

        height, width = picture.shape[:2]
        side = min(height, width)
        left, top, across, down = self._settings.crop or ((width - side) // 2, (height - side) // 2, side, side)
        if left + across > width or top + down > height:
            raise CameraChanged(
                "The crop lies outside the picture.",
                got=self._settings.crop,
                allowed=f"within {width} x {height}",
            )
        square = np.rot90(picture[top : top + down, left : left + across], self._settings.rotate // 90)
        size = (self._settings.image_size,) * 2
        return np.asarray(cv2.resize(np.ascontiguousarray(square), size, interpolation=cv2.INTER_AREA), np.uint8)

    def _require_like_reference(self, picture: Picture, now: float) -> None:
        """Raise CameraChanged if the pictures have been unlike the reference for `frozen_after`, since a hand may pass by."""
        if self._reference is None:
            return
        found = correlation(_part(picture, self._settings), self._reference)
        if found >= self._settings.reference_least:
            self._unlike_since = None
            return
        self._unlike_since = now if self._unlike_since is None else self._unlike_since
        if now - self._unlike_since >= self._settings.frozen_after:
            raise CameraChanged(
                "It does not show what its reference shows.",
                got=f"correlation {found:.2f}",
                allowed=f"at least {self._settings.reference_least}",
                fix="were cameras swapped, or was this one moved or covered? if not, take another reference",
            )


def correlation(first: Picture, second: Picture) -> float:
    """Return the correlation of the brightness of two pictures (H, W, 3), -1 to 1; 0 if one of them has no contrast."""
    grey = [picture.mean(axis=2, dtype=np.float64) for picture in (first, second)]
    centred = [values - values.mean() for values in grey]
    scale = np.sqrt(np.square(centred[0]).sum() * np.square(centred[1]).sum())
    return float((centred[0] * centred[1]).sum() / scale) if scale > 0 else 0.0


def main(words: list[str]) -> None:
    """Run the process of a camera; words: ends with its name, settings as JSON, and number of the socket."""
    drop_realtime()
    name, settings, descriptor = words[-3:]
    given = json.loads(settings)
    options = CameraOptions.of(name, given, given["image_size"])
    kind = load_named("cameras", "kind", options.common.kind)
    channel = inherited(int(descriptor))
    pictures = CheckedPictures(kind(options.device), options.common)
    try:
        while True:
            for message in _messages(pictures):
                channel.send_bytes(message)
            time.sleep(REOPEN)
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        pictures.device.close()


def _messages(pictures: CheckedPictures) -> Iterator[bytes]:
    """Yield pictures and faults, encoded, until the device is lost."""
    try:
        identity = pictures.device.open()
    except RoboRLError as error:
        yield _fault(error)
        pictures.device.close()
        return
    while True:
        try:
            picture, exposed = pictures.read()
        except CameraFault as error:
            yield _fault(error)
            if type(error) is CameraFault:
                pictures.device.close()
                return
            continue
        facts = {"shape": picture.shape, "exposed": exposed, "identity": identity}
        yield json.dumps(facts).encode() + b"\n" + picture.tobytes()


def _fault(error: RoboRLError) -> bytes:
    kind = type(error).__name__
    return json.dumps({"fault": kind if kind in FAULTS else CameraFault.__name__, "text": str(error)}).encode()


def read_reference(settings: CameraSettings) -> Picture:
    """Return the compared part (h, w, 3) of the reference; raises InvalidSetting if it is no picture of the camera's size."""
    import cv2

    found = cv2.imread(str(settings.reference), cv2.IMREAD_COLOR)
    size = settings.image_size
    if found is None or found.shape != (size, size, 3):
        raise InvalidSetting(
            "The reference of a camera is no picture of its size.",
            got=f"{settings.reference}: {'unreadable' if found is None else found.shape}",
            allowed=f"a PNG of {size} x {size} pixels, RGB",
            fix="robo-rl robot check URL --pictures FOLDER writes one",
        )
    return _part(np.asarray(found[..., ::-1], np.uint8), settings)


def _part(picture: Picture, settings: CameraSettings) -> Picture:
    left, top, width, height = settings.reference_region or (0, 0, settings.image_size, settings.image_size)
    return picture[top : top + height, left : left + width]


def _is_area(area: tuple[int, int, int, int], size: float = np.inf) -> bool:
    left, top, width, height = area
    return left >= 0 and top >= 0 and width > 0 and height > 0 and max(left + width, top + height) <= size


def _nothing(name: str, text: str) -> None: ...


if __name__ == "__main__":
    main(sys.argv[1:])
