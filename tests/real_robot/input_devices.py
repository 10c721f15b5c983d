"""Stand-ins for devices that a person drives with: the interface below our drivers, as the real packages have it."""

import ctypes
import json
import os
import pty
import struct
import tempfile
import time
from pathlib import Path

import pytest
from lerobot_bench import servo_arm

from robo_real.teleoperation.gamepad import Gamepad
from robo_real.teleoperation.keyboard import Keyboard, KeyboardSettings
from robo_real.teleoperation.leader_arm import LeaderArm, LeaderArmOptions
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


class SDLHand:
    """A hand at a virtual gamepad of the real SDL, which pygame-ce brings."""

    def __init__(self, monkeypatch):
        pygame = pytest.importorskip("pygame")
        libraries = [*Path(pygame.__file__).parents[1].glob("pygame_ce.libs/libSDL2-2*")]
        if not libraries:
            pytest.skip("the wheel of pygame-ce has no SDL beside it")
        for name in ("SDL_VIDEODRIVER", "SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "PYGAME_HIDE_SUPPORT_PROMPT"):
            monkeypatch.setenv(name, os.environ.get(name, "1" if name != "SDL_VIDEODRIVER" else "dummy"))
        self.sdl = ctypes.CDLL(str(libraries[0]))
        self.sdl.SDL_JoystickOpen.restype = ctypes.c_void_p
        self.sdl.SDL_JoystickSetVirtualAxis.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int16)
        self.sdl.SDL_JoystickSetVirtualButton.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint8)
        self.device, self.index = Gamepad(), None
        self.pygame = self.device._pygame
        self.pygame.display.init()
        self.device._controllers.init()  # the bus outlives the device
        self.pygame.joystick.init()
        self.plug()

    def plug(self):
        self.index = self.sdl.SDL_JoystickAttachVirtual(1, 6, 15, 1)
        self.pad = self.sdl.SDL_JoystickOpen(self.index)

    def forward(self):
        self.sdl.SDL_JoystickSetVirtualAxis(self.pad, 1, -32767)

    def release(self):
        self.sdl.SDL_JoystickSetVirtualAxis(self.pad, 1, 0)

    def close_gripper(self):
        self.device.read()
        self.sdl.SDL_JoystickSetVirtualButton(self.pad, 0, 1)

    def unplug(self):
        self.sdl.SDL_JoystickDetachVirtual(self.index)

    def end(self):
        self.pygame.quit()


STILL = {"slide": [0.0, 0.0, 0.05]}


class LeaderHand:
    """A hand at a leader arm, whose places the test writes to a file; LeRobot's classes are the stand-in's."""

    def __init__(self, monkeypatch):
        self.folder = Path(tempfile.mkdtemp())
        self.places = self.folder / "places.json"
        self.move(STILL)
        leader = {"type": "leader_arm", "places_file": str(self.places)}
        options = servo_arm(self.folder, teleoperator=leader, rate=100)
        self.device = LeaderArm(LeaderArmOptions(**options))

    def move(self, places):
        draft = self.places.with_suffix(".new")
        draft.write_text(json.dumps(places))
        draft.replace(self.places)

    def forward(self):
        """Moves the hand forward, faster than full deflection."""
        self.move({"slide": [time.monotonic(), 0.3, 0.0]})
        time.sleep(0.15)

    def release(self):
        self.move(STILL)
        time.sleep(0.3)

    def close_gripper(self):
        self.device.read()
        self.move({**STILL, "gripper": 5.0})
        time.sleep(0.1)

    def unplug(self):
        self.move({"unplugged": 1})
        time.sleep(0.8)

    def plug(self):
        self.move(STILL)

    def end(self):
        pass
