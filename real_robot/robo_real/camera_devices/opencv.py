"""Camera through OpenCV: a webcam or capture card by number, path or serial number, a film file, or a stream by its address."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from robo_real.cameras import CameraDevice, Picture
from robo_rl.errors import CameraFault, require_allowed

SYSFS = Path("/sys/class/video4linux")
"""Linux's list of cameras"""
MANUAL = {"V4L2": 1.0}
"""back end of OpenCV -> value of CAP_PROP_AUTO_EXPOSURE that turns automatic exposure off"""
MANUAL_ELSEWHERE = 0.25
"""OpenCV's value for manual exposure with all back ends that `MANUAL` does not list."""
TOLERANCE = 0.01
"""share by which rate and exposure of the device may differ from those that were set"""
ATTEMPTS = 3
"""number of failed reads in a row after which a camera counts as lost; a picture that was torn on the wire fails, too"""
MOST_QUEUED = 2.0
"""[s] largest plausible age of a picture; a larger one means that the back end's time is not the machine's"""
WARNINGS = "OPENCV_LOG_LEVEL"
"""environment variable for OpenCV's log; at its default each attempt to open a missing device would print a warning"""
WAIT = "OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT"
"""environment variable for the time [s] after which a read of V4L2 fails; OpenCV's default is 10"""


@dataclass(frozen=True)
class OpenCVOptions:
    """Options of a camera through OpenCV; None leaves a setting as the device has it."""

    device: int | str = 0
    """number of the device, path such as /dev/v4l/by-id/..., film file, or address of a stream"""
    serial: str = ""
    """serial number of the device, given in place of `device`; on Linux only"""
    width: int | None = None
    """[pixel] width of the device's pictures, before cropping; given together with `height`"""
    height: int | None = None
    """[pixel] height of the device's pictures, before cropping"""
    rate: float | None = None
    """[1/s] rate of the pictures, above 0"""
    exposure: float | None = None
    """fixed exposure in the unit of OpenCV's back end (V4L2: 100 us), above 0; None for automatic exposure"""
    fourcc: str = ""
    """pixel format in four characters, such as MJPG, which USB 2 needs for large pictures; empty for the device's own"""
    colour_order: Literal["bgr", "rgb"] = "bgr"
    """order of the colours in the pictures from OpenCV: rgb for NV12 from V4L2, bgr for all else"""

    def __post_init__(self) -> None:
        allowed = {
            "serial": (not self.serial or self.device == 0, "a serial number or a device, not both"),
            "width": ((self.width is None) == (self.height is None), "width and height together"),
            "fourcc": (len(self.fourcc) in (0, 4), "four characters"),
        }
        require_allowed(self, allowed)
        numbers = {name: getattr(self, name) for name in ("width", "height", "rate", "exposure")}
        require_allowed(self, {name: (value is None or value > 0, "above 0, or null") for name, value in numbers.items()})


class OpenCVCamera(CameraDevice):
    """Camera that cv2.VideoCapture reads."""

    options = OpenCVOptions

    def __init__(self, options: OpenCVOptions) -> None:
        self._options = options
        self._capture: Any = None
        self._is_v4l2 = False

    @override
    def open(self) -> str:
        os.environ.setdefault(WAIT, "1")
        os.environ.setdefault(WARNINGS, "ERROR")
        import cv2

        options = self._options
        device = find_serial(options.serial) if options.serial else options.device
        is_local = isinstance(device, int) or str(device).startswith("/dev/")
        capture = cv2.VideoCapture(device, cv2.CAP_V4L2 if is_local and sys.platform == "linux" else cv2.CAP_ANY)
        if not capture.isOpened():
            raise CameraFault(f"{device!r} does not open.", fix="ls -l /dev/v4l/by-id; is another program using it?")
        self._capture = capture
        back_end = capture.getBackendName()
        self._is_v4l2 = back_end == "V4L2"
        if is_local:
            capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        wanted = {
            "fourcc": (cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*options.fourcc) if options.fourcc else None, 0.0),
            "width": (cv2.CAP_PROP_FRAME_WIDTH, options.width, 0.0),
            "height": (cv2.CAP_PROP_FRAME_HEIGHT, options.height, 0.0),
            "rate": (cv2.CAP_PROP_FPS, options.rate, TOLERANCE),
            "exposure": (cv2.CAP_PROP_EXPOSURE, options.exposure, TOLERANCE),
        }
        if options.exposure is not None:
            capture.set(cv2.CAP_PROP_AUTO_EXPOSURE, MANUAL.get(back_end, MANUAL_ELSEWHERE))
        for number, value, _ in wanted.values():
            if value is not None:
                capture.set(number, value)
        for name, (number, value, tolerance) in wanted.items():  # once all are set: V4L2 takes width and height together
            if value is not None and abs((got := capture.get(number)) - value) > tolerance * abs(value):
                raise CameraFault(
                    f"It does not take the {name} that was asked for.",
                    got=got,
                    allowed=f"{name}: {value}",
                    fix="v4l2-ctl --list-formats-ext --list-ctrls shows what it can do; large pictures need fourcc: MJPG",
                )
        return usb_identity(f"/dev/video{device}" if isinstance(device, int) else device) if is_local else str(device)

    @override
    def read(self) -> tuple[Picture, float]:
        import cv2

        for _ in range(ATTEMPTS):
            is_read, picture = self._capture.read()
            if is_read:
                break
        now = time.monotonic()
        if not is_read:
            raise CameraFault("It gives no picture.", fix="look at its cable")
        if self._is_v4l2:  # its buffers have the time of the exposure by the monotonic clock
            exposed = self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1000
            now = exposed if 0 <= now - exposed < MOST_QUEUED else now
        if picture.ndim == 2:
            return np.repeat(picture[..., None], 3, axis=2), now
        return np.asarray(picture[..., ::-1] if self._options.colour_order == "bgr" else picture, np.uint8), now

    @override
    def close(self) -> None:
        if self._capture is not None:
            self._capture.release()
            self._capture = None


def find_serial(serial: str, root: Path = SYSFS) -> str:
    """Return the path of the camera with a serial number; raises CameraFault unless there is exactly one."""
    found = {}
    for entry in sorted(root.glob("video*")):
        if _text(entry / "index") == "0":  # further nodes of a camera carry no pictures
            found[f"/dev/{entry.name}"] = _text(entry / "device" / ".." / "serial")
    paths = [path for path, number in found.items() if number == serial]
    if len(paths) != 1:
        raise CameraFault(
            f"{len(paths)} cameras have the serial number {serial!r}.",
            got=", ".join(f"{path}: {number or 'none'}" for path, number in found.items()) or "no camera",
            allowed="exactly one",
            fix="look at its cable; cameras without a number of their own have a path in /dev/v4l/by-path",
        )
    return paths[0]


def usb_identity(path: str, root: Path = SYSFS) -> str:
    """Return vendor, product and serial number of the USB camera at a path, "" if the system does not know them."""
    device = root / Path(os.path.realpath(path)).name / "device" / ".."
    return " ".join(part for name in ("idVendor", "idProduct", "serial") if (part := _text(device / name)))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
