"""Every device that a person drives with keeps the promises of `Teleoperator`. One row per device."""

import sys
import time
from pathlib import Path

import pytest

from robo_real.teleoperation.teleoperator import AXES, POLL, MotionSettings, make_teleoperator
from robo_rl.entry_points import known, load
from robo_rl.errors import TeleoperatorUnavailable, UnknownName

sys.path.insert(0, str(Path(__file__).parents[1] / "real_robot"))

from input_devices import KeyboardHand, LeaderHand, SDLHand, SpaceMouseHand

ROWS = {
    "keyboard": KeyboardHand,
    "gamepad": SDLHand,
    "spacemouse": SpaceMouseHand,
    "leader-arm": LeaderHand,
}
SLOW = 0.2
"""[s] beyond POLL, on a busy machine"""


# the readings of a leader arm come from another process and are refused when they are 0.1 s old
DEVICES = [pytest.param(name, marks=pytest.mark.real_time) if name == "leader-arm" else name for name in ROWS]


@pytest.fixture(params=DEVICES)
def hand(request, monkeypatch):
    found = ROWS[request.param](monkeypatch)
    found.device.connect()
    yield found
    found.device.close()
    found.end()


def newest(hand):
    """Returns the state once all that was sent has come."""
    return [hand.device.read() for _ in range(3)][-1]


def test_every_device_has_a_row():
    assert set(known("teleoperators")) == set(ROWS)


def test_settings_and_help_are_there():
    for name in ROWS:
        kind = load("teleoperators", name)
        assert issubclass(kind.options, MotionSettings) and kind.keys
    with pytest.raises(UnknownName, match="dead_bnad"):
        make_teleoperator("keyboard", {"dead_bnad": 0.1})
    with pytest.raises(UnknownName, match="spacemouse"):
        make_teleoperator("spacemuose", {})


def test_device_at_rest_commands_nothing(hand):
    reading = newest(hand)
    assert not any(reading.axes.values()) and not reading.is_held and reading.presses == ()
    assert set(reading.axes) <= set(AXES)


def test_forward_is_positive_x_alone_until_released(hand):
    hand.forward()
    reading = newest(hand)
    assert {axis: value for axis, value in reading.axes.items() if value} == {"x": 1.0}
    hand.release()
    assert not any(newest(hand).axes.values())


def test_a_press_of_the_gripper_is_read_once(hand):
    hand.close_gripper()
    presses = [press for _ in range(4) for press in hand.device.read().presses]
    assert presses in (["toggle_gripper"], ["close_gripper"])


@pytest.mark.real_time
def test_reading_a_silent_device_returns_at_once(hand):
    start = time.monotonic()
    for _ in range(5):
        hand.device.read()
    assert time.monotonic() - start < 5 * POLL + SLOW


def test_unplugged_device_raises_and_opens_again_at_rest(hand):
    hand.forward()
    assert newest(hand).axes["x"] == 1.0
    hand.unplug()
    with pytest.raises(TeleoperatorUnavailable):
        hand.device.read()
    hand.device.close()
    with pytest.raises(TeleoperatorUnavailable):
        hand.device.connect()
    hand.plug()
    hand.device.connect()
    assert not any(newest(hand).axes.values())


def test_close_may_come_twice_and_first(hand):
    hand.device.close()
    hand.device.close()
    type(hand.device)(hand.device.settings).close()
