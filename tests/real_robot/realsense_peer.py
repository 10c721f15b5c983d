"""Stand-in for pyrealsense2: the names that the camera uses, with the behaviour of the library (2.59) for two D405 and D435."""

import time
from types import SimpleNamespace

import numpy as np


class timestamp_domain:
    hardware_clock, system_time, global_time = "hardware_clock", "system_time", "global_time"


class camera_info:
    name, serial_number = "name", "serial_number"


class stream:
    color = "color"


class format:
    rgb8 = "rgb8"


class option:
    enable_auto_exposure, exposure = "enable_auto_exposure", "exposure"


class Bus:
    """Connected devices, and what the pipelines were asked."""

    def __init__(self):
        self.devices = {"0001": "Intel RealSense D435", "0002": "Intel RealSense D405"}
        self.calls, self.options = [], {}
        self.is_silent = False
        self.domain = timestamp_domain.global_time


BUS = Bus()


class device:
    def __init__(self, serial):
        self._serial = serial

    def get_info(self, info):
        return {"name": BUS.devices[self._serial], "serial_number": self._serial}[info]

    def query_sensors(self):
        return [sensor(name) for name in (["Stereo Module"] if self._serial == "0002" else ["Stereo Module", "RGB Camera"])]


class sensor:
    def __init__(self, name):
        self._name = name

    def get_info(self, info):
        return self._name

    def supports(self, wanted):
        return wanted in ("enable_auto_exposure", "exposure")

    def set_option(self, wanted, value):
        if wanted == option.exposure and not 1 <= value <= 165000:
            raise RuntimeError(f"out of range value {value} for option exposure")
        BUS.options[self._name, wanted] = value


class context:
    def query_devices(self):
        return [device(serial) for serial in BUS.devices]


class config:
    def __init__(self):
        self.serial, self.asked = None, None

    def enable_device(self, serial):
        self.serial = serial

    def enable_stream(self, kind, width, height, pixels, rate):
        self.asked = (width, height, rate)


class pipeline:
    def __init__(self):
        self._runs, self._number = False, 0

    def start(self, wanted):
        if wanted.serial not in BUS.devices:
            raise RuntimeError("No device connected")
        if wanted.asked not in [(640, 480, 30), (1280, 720, 30), (424, 240, 60)]:
            raise RuntimeError("Couldn't resolve requests")
        self._asked, self._serial, self._runs = wanted.asked, wanted.serial, True
        BUS.calls.append("start")
        return SimpleNamespace(get_device=lambda: device(wanted.serial))

    def try_wait_for_frames(self, timeout_ms=5000):
        if not self._runs:
            raise RuntimeError("wait_for_frames cannot be called before start()")
        if BUS.is_silent or self._serial not in BUS.devices:
            time.sleep(min(timeout_ms, 20) / 1000)
            return False, composite_frame(None)
        self._number += 1
        width, height, _ = self._asked
        return True, composite_frame(np.full((height, width, 3), (200, self._number, 10), np.uint8))

    def stop(self):
        if not self._runs:
            raise RuntimeError("stop() cannot be called before start()")
        self._runs = False
        BUS.calls.append("stop")


class composite_frame:
    def __init__(self, pixels):
        self._pixels = pixels

    def get_color_frame(self):
        return video_frame(self._pixels)


class video_frame:
    def __init__(self, pixels):
        self._pixels = pixels

    def __bool__(self):
        return self._pixels is not None

    def get_data(self):
        return memoryview(self._pixels)

    def get_timestamp(self):
        return 1000 * (12.5 if BUS.domain == "hardware_clock" else time.time() - 0.03)

    def get_frame_timestamp_domain(self):
        return BUS.domain
