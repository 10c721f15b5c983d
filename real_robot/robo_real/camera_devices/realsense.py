"""Colour camera of a RealSense through pyrealsense2."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from robo_real.cameras import CameraDevice, Picture
from robo_rl.errors import CameraFault, optional, require_allowed

WARM_UP, WAIT = 5000, 300
"""[ms] longest wait for the first picture, and for each later picture"""
COLOUR_SENSORS = ("RGB Camera", "Stereo Module")
"""names of the sensors that take colour pictures, the preferred one first; a D405 has the second one only"""
MOST_QUEUED = 2.0
"""[s] largest plausible age of a picture; a larger one means that the clocks differ"""


@dataclass(frozen=True)
class RealSenseOptions:
    """Options of a RealSense camera."""

    serial: str = ""
    """serial number of the camera; empty if only one is connected"""
    width: int = 640
    """[pixel] width of the device's pictures, before cropping"""
    height: int = 480
    """[pixel] height of the device's pictures, before cropping"""
    rate: int = 30
    """[1/s] rate of the pictures"""
    exposure: float | None = None
    """[us] fixed exposure, above 0; None for automatic exposure"""

    def __post_init__(self) -> None:
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in ("width", "height", "rate")}
        allowed["exposure"] = (self.exposure is None or self.exposure > 0, "above 0 [us], or null")
        require_allowed(self, allowed)


class RealSenseCamera(CameraDevice):
    """Colour pictures of a RealSense camera."""

    options = RealSenseOptions

    def __init__(self, options: RealSenseOptions) -> None:
        self._options = options
        self._pipeline: Any = None

    @override
    def open(self) -> str:
        with optional("The camera realsense", "pyrealsense2", "realsense"):
            import pyrealsense2 as rs
        options, serial = self._options, self._serial(rs)
        config, pipeline = rs.config(), rs.pipeline()
        config.enable_device(serial)
        config.enable_stream(rs.stream.color, options.width, options.height, rs.format.rgb8, options.rate)
        try:
            device = pipeline.start(config).get_device()
            self._pipeline = pipeline
            self._expose(rs, device)
            pipeline.try_wait_for_frames(WARM_UP)
        except RuntimeError as error:
            raise CameraFault(
                f"The RealSense {serial} does not start.",
                got=error,
                allowed=f"{options.width} x {options.height} at {options.rate} pictures/s",
                fix="rs-enumerate-devices shows its formats; a port of USB 2 allows fewer",
            ) from None
        return f"{device.get_info(rs.camera_info.name)} {serial}"

    @override
    def read(self) -> tuple[Picture, float]:
        import pyrealsense2 as rs

        try:
            has_come, frames = self._pipeline.try_wait_for_frames(WAIT)
        except RuntimeError as error:
            raise CameraFault("The RealSense is lost.", got=error, fix="look at its cable") from None
        frame = frames.get_color_frame() if has_come else None
        if not frame:
            raise CameraFault("The RealSense gives no picture.", got=f"none in {WAIT} ms", fix="look at its cable")
        now = time.monotonic()
        if frame.get_frame_timestamp_domain() != rs.timestamp_domain.hardware_clock:  # else by a clock of the device
            age = time.time() - frame.get_timestamp() / 1000
            now -= age if 0 <= age < MOST_QUEUED else 0.0
        return np.array(frame.get_data(), np.uint8), now  # a copy: the memory is librealsense's

    @override
    def close(self) -> None:
        if self._pipeline is not None:
            with contextlib.suppress(RuntimeError):  # it is unplugged
                self._pipeline.stop()
            self._pipeline = None

    def _serial(self, rs: Any) -> str:
        """Return the serial number to open; raises CameraFault if it is not connected, or not the only one."""
        found = [device.get_info(rs.camera_info.serial_number) for device in rs.context().query_devices()]
        wanted = [number for number in found if self._options.serial in ("", number)]
        if len(wanted) != 1:
            raise CameraFault(
                f"{len(wanted)} RealSense cameras match.",
                got=", ".join(found) or "none is connected",
                allowed=f"exactly one with the serial number {self._options.serial or '(any)'}",
                fix="look at its cable, or name its serial number",
            )
        return str(wanted[0])

    def _expose(self, rs: Any, device: Any) -> None:
        sensors = {sensor.get_info(rs.camera_info.name): sensor for sensor in device.query_sensors()}
        sensor = next((sensors[name] for name in COLOUR_SENSORS if name in sensors), None)
        if sensor is None or not sensor.supports(rs.option.enable_auto_exposure):
            if self._options.exposure is None:
                return
            raise CameraFault("This RealSense has no exposure to set.", got=", ".join(sensors), fix="leave exposure out")
        sensor.set_option(rs.option.enable_auto_exposure, float(self._options.exposure is None))
        if self._options.exposure is not None:
            sensor.set_option(rs.option.exposure, self._options.exposure)
