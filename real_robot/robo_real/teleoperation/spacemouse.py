"""3Dconnexion SpaceMouse, read as raw HID reports.

Each report has a number. Report 1 has the translation and report 2 the rotation, as three little-endian 16-bit integers in
-350..350; newer models send all six in report 1. Report 3 is a bit mask of the buttons. The device's own axes are x right, y
towards the operator, z down. A device sends a report every 8 to 16 ms while its cap is deflected, and none while the cap rests.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from typing_extensions import override

from robo_real.teleoperation.teleoperator import POLL, MotionSettings, Press, Reading, Teleoperator
from robo_rl.errors import MissingExtra, TeleoperatorUnavailable

PRODUCTS = {
    (0x046D, 0xC623): "SpaceTraveler",
    (0x046D, 0xC625): "SpacePilot",
    (0x046D, 0xC626): "SpaceNavigator",
    (0x046D, 0xC627): "SpaceExplorer",
    (0x046D, 0xC628): "SpaceNavigator for Notebooks",
    (0x046D, 0xC629): "SpacePilot Pro",
    (0x046D, 0xC62B): "SpaceMouse Pro",
    (0x256F, 0xC62E): "SpaceMouse Wireless (cable)",
    (0x256F, 0xC62F): "SpaceMouse Wireless (receiver)",
    (0x256F, 0xC631): "SpaceMouse Pro Wireless (cable)",
    (0x256F, 0xC632): "SpaceMouse Pro Wireless (receiver)",
    (0x256F, 0xC633): "SpaceMouse Enterprise",
    (0x256F, 0xC635): "SpaceMouse Compact",
    (0x256F, 0xC638): "SpaceMouse Pro Wireless (Bluetooth)",
    (0x256F, 0xC63A): "SpaceMouse Wireless (Bluetooth)",
    (0x256F, 0xC641): "SpaceMouse Module",
    (0x256F, 0xC652): "Universal Receiver",
}
"""(USB vendor, USB product) -> name of a SpaceMouse; the same vendors also make keyboards and mice"""
MULTI_AXIS = (1, 8)
"""HID usage page and usage of a multi-axis controller"""
TRANSLATION, ROTATION, BUTTONS = 1, 2, 3
FULL = 350
"""Number that the device reports for an axis at full deflection."""
MOST = 64
"""Largest size [byte] of a message (HID report) from the device."""
MOST_REPORTS = 32
"""largest number of reports that one call of `read` takes"""


@dataclass(frozen=True)
class SpaceMouseOptions(MotionSettings):
    """Settings of a SpaceMouse."""

    serial: str = ""
    """serial number of the device; required if there are several"""
    silence: float = 0.1
    """[s] without a report while the cap is deflected, after which the device counts as lost (out of range, or an empty
    battery); 0 for a model that reports only changes"""


class SpaceMouse(Teleoperator):
    """SpaceMouse; its left button closes the gripper, the right one opens it."""

    options = SpaceMouseOptions
    keys = "push, pull and twist the cap to drive; left button: close the gripper, right button: open it"

    def __init__(self, options: SpaceMouseOptions | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options)
        self._hid, self._clock = _hid(), clock
        self._device: Any = None
        self._counts = [0] * 6
        self._buttons = 0
        self._heard = 0.0

    @override
    def connect(self) -> str:
        found = [info for info in self._hid.enumerate() if _is_spacemouse(info)]
        chosen = [info for info in found if self.settings.serial in ("", info["serial_number"])]
        paths = sorted({info["path"] for info in chosen})
        if len(paths) != 1:
            seen = "; ".join(sorted({f"{_name(info)}, serial number {info['serial_number'] or 'none'}" for info in found}))
            raise TeleoperatorUnavailable(
                "There is no SpaceMouse." if not paths else "There are several SpaceMice.",
                got=seen or "no 3Dconnexion device",
                allowed="one, or the serial number of one",
                fix="plug it in; on Linux give your user its /dev/hidraw* by a udev rule"
                if not paths
                else "--teleoperator.settings.serial NUMBER",
            )
        self._device = self._hid.device()
        try:
            self._device.open_path(paths[0])
            self._device.set_nonblocking(1)  # for reads with timeout 0; others wait up to it
        except OSError as error:
            self._device = None
            raise TeleoperatorUnavailable(
                f"{_name(chosen[0])} cannot be opened.",
                got=str(error),
                fix="on Linux give your user its /dev/hidraw* by a udev rule; end the program that uses it",
            ) from None
        self._counts, self._buttons, self._heard = [0] * 6, 0, self._clock()
        return _name(chosen[0])

    @override
    def read(self) -> Reading:
        presses: list[Press] = []
        timeout = round(1000 * POLL)
        for _ in range(MOST_REPORTS):
            if not (report := self._report(timeout)):
                break
            presses += self._take(bytes(report))
            timeout = 0
        silence = self.settings.silence
        is_deflected = max(map(abs, self._counts)) > self.settings.dead_band * FULL
        if silence and is_deflected and self._clock() - self._heard > silence:
            raise TeleoperatorUnavailable(f"The SpaceMouse was deflected and sent nothing for {silence:g} s.")
        right, back, down, about_right, about_back, about_down = (max(-1.0, min(1.0, count / FULL)) for count in self._counts)
        axes = {"x": -back, "y": -right, "z": -down, "roll": -about_back, "pitch": -about_right, "yaw": -about_down}
        return Reading(axes, None, tuple(presses))

    @override
    def close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None

    def _report(self, timeout: int) -> list[int]:
        """Return the bytes of the next report; an empty list if none comes within `timeout` [ms]."""
        try:
            found: list[int] = self._device.read(MOST, timeout)
        except (OSError, ValueError) as error:  # unplugged
            raise TeleoperatorUnavailable("The SpaceMouse does not answer.", got=str(error), fix="plug it in") from None
        return found

    def _take(self, report: bytes) -> list[Press]:
        """Update deflections and buttons by a report, and return its presses. Other reports, as of the battery, are ignored."""
        number, values = report[0], report[1:]
        if number in (TRANSLATION, ROTATION) and len(values) >= 6:
            self._heard = self._clock()
            count = 6 if number == TRANSLATION and len(values) >= 12 else 3
            first = 3 if number == ROTATION else 0
            self._counts[first : first + count] = struct.unpack_from(f"<{count}h", values)
        elif number == BUTTONS and values:
            pressed, self._buttons = values[0] & ~self._buttons, values[0]
            kinds: tuple[Press, ...] = ("close_gripper", "open_gripper")
            return [kind for bit, kind in enumerate(kinds) if pressed >> bit & 1]
        return []


def _hid() -> ModuleType:
    try:
        try:
            import hidraw as hid  # the kernel's own interface, which leaves the device to other programs as well
        except ImportError:
            import hid
    except ImportError:
        raise MissingExtra("The SpaceMouse", "hidapi", "spacemouse") from None
    found: ModuleType = hid
    return found


def _is_spacemouse(info: dict[str, Any]) -> bool:
    """Return whether an entry of hidapi's `enumerate` is the cap of a SpaceMouse; its usage is 0 if hidapi does not know it."""
    return (info["vendor_id"], info["product_id"]) in PRODUCTS and (info["usage_page"], info["usage"]) in (MULTI_AXIS, (0, 0))


def _name(info: dict[str, Any]) -> str:
    return info["product_string"] or PRODUCTS[info["vendor_id"], info["product_id"]]
