"""Stand-ins for devices that a person drives with: the interface below our drivers, as the real packages have it."""

import os
import pty
import struct

from robo_real.teleoperation.keyboard import Keyboard, KeyboardSettings
from robo_real.teleoperation.spacemouse import SpaceMouse, SpaceMouseOptions


class SpaceMouseBus:
    """The module `hid` of hidapi with one SpaceMouse on the bus: `enumerate` and `device`, as of cython-hidapi 0.15."""

    def __init__(self, *serials, product=0xC635, usage=(1, 8)):
        self.serials, self.product, self.usage = list(serials or ("A1",)), product, usage
        self.reports, self.is_plugged, self.opened, self.is_nonblocking, self.waits = [], True, [], 0, 0.0
        self.device = lambda: self

    def enumerate(self, vendor_id=0, product_id=0):
        row = {
            "vendor_id": 0x256F,
            "product_id": self.product,
            "product_string": "SpaceMouse Compact",
            "manufacturer_string": "",
        }
        mine = [
            row | {"path": f"/dev/hidraw{index}".encode(), "serial_number": serial, "usage_page": page, "usage": usage}
            for index, serial in enumerate(self.serials)
            for page, usage in (self.usage, (1, 6))  # the cap, and the keyboard that some have beside it
        ]
        other = row | {"vendor_id": 0x046D, "product_id": 0xC31C, "path": b"/dev/hidraw9", "usage_page": 1, "usage": 6}
        return [other | {"serial_number": ""}, *(mine if self.is_plugged else [])]

    def open_path(self, path):
        if not self.is_plugged:
            raise OSError("open failed")
        self.opened.append(path)

    def set_nonblocking(self, value):
        self.is_nonblocking = value

    def read(self, max_length, timeout_ms=0):
        assert timeout_ms or self.is_nonblocking, "it would block for ever"
        if not self.is_plugged:
            raise OSError("read error")
        self.waits += timeout_ms / 1000 * (not self.reports)
        return list(self.reports.pop(0))[:max_length] if self.reports else []

    def close(self):
        pass

    # what the hand does

    def push(self, *counts):
        """Reports translation and rotation in the device's own axes: right, back, down, and about them."""
        self.reports += [bytes([1]) + struct.pack("<3h", *counts[:3]), bytes([2]) + struct.pack("<3h", *counts[3:])]

    def press(self, buttons):
        self.reports.append(bytes([3, buttons, 0]))


def spacemouse(monkeypatch, bus=None, clock=None, **options):
    """Returns a SpaceMouse on a bus of its own, and the bus."""
    bus = bus or SpaceMouseBus()
    monkeypatch.setattr("robo_real.teleoperation.spacemouse._hid", lambda: bus)
    return SpaceMouse(SpaceMouseOptions(**options), *([clock] if clock else [])), bus


class SpaceMouseHand:
    """A hand at the cap."""

    def __init__(self, monkeypatch):
        self.device, self.bus = spacemouse(monkeypatch)

    def forward(self):
        self.bus.push(0, -350, 0, 0, 0, 0)

    def release(self):
        self.bus.push(0, 0, 0, 0, 0, 0)

    def close_gripper(self):
        self.bus.press(1)

    def unplug(self):
        self.bus.is_plugged = False

    def plug(self):
        self.bus.is_plugged, self.bus.reports = True, []

    def end(self):
        pass


class KeyboardHand:
    """A hand at a terminal."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.plug()
        self.device = Keyboard(KeyboardSettings(), lambda: self.now, terminal=self.slave)

    def plug(self):
        self.master, self.slave = pty.openpty()
        if hasattr(self, "device"):
            self.device._terminal = self.slave

    def type(self, letters):
        os.write(self.master, letters)

    def forward(self):
        self.type(b"w")

    def release(self):
        self.now += 1.0

    def close_gripper(self):
        self.type(b"g")

    def unplug(self):
        os.close(self.master)

    def end(self):
        self.device.close()
        for terminal in (self.master, self.slave):
            try:
                os.close(terminal)
            except OSError:
                continue
