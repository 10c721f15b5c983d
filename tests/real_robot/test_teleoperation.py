"""Devices that a person drives with, attacked: unplugged, silent, flooding, worn out, and back with the cap still pushed."""

import sys
import termios
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robo_real.arm_spec import MAX_STEP, arm_spec
from robo_real.console.human import HoldAction
from robo_real.console.operator_state import HELD_SILENCE, DecisionKind, OperatorState
from robo_real.console.robot_console import RobotConsole
from robo_real.teleoperation.gamepad import GamepadSettings
from robo_real.teleoperation.keyboard import PULSE
from robo_real.teleoperation.motion import SHARE, MotionCommand
from robo_real.teleoperation.session import TeleoperatorSession
from robo_real.teleoperation.teleoperator import MotionSettings, Reading, Teleoperator
from robo_rl.errors import InvalidSetting, TeleoperatorUnavailable
from robo_rl.types import ActionSource

sys.path.insert(0, str(Path(__file__).parent))

from console_operators import Page, start
from input_devices import KeyboardHand, SDLHand, SpaceMouseBus, spacemouse

SPEC = arm_spec("a robot").action


def command(reading, now=0.0, **settings):
    return MotionCommand(MotionSettings(**settings), SPEC).of(reading, now)


# deflections to actions


def test_full_deflection_is_a_speed_in_units_of_the_spec():
    action = command(Reading({"x": 1.0, "yaw": -1.0}), linear_speed=0.15, angular_speed=0.6).action
    physical = SPEC.to_physical(action)
    assert physical[0] == pytest.approx(0.15 * 0.05) and physical[3] == pytest.approx(-0.6 * 0.05)
    default = SPEC.to_physical(command(Reading({"z": 1.0})).action)
    assert default[2] == pytest.approx(SHARE * MAX_STEP[2]) and default[0] == 0


def test_dead_band_is_rest_and_the_remainder_starts_at_zero():
    assert not command(Reading({"x": 0.1}), dead_band=0.1).held
    little, half = (command(Reading({"x": value}), dead_band=0.2).action[0] for value in (0.201, 0.6))
    assert 0 < little < 0.001 and half == pytest.approx(SHARE / 2, rel=1e-5)


def test_axes_are_reversed_for_an_operator_who_faces_the_robot():
    action = command(Reading({"x": 1.0, "pitch": 1.0}), axes={"dx": "-x", "dy": "pitch"}).action
    assert action[0] == pytest.approx(-SHARE) and action[1] == pytest.approx(SHARE) and not action[2:].any()


def test_deflection_beyond_the_end_is_the_end():
    assert command(Reading({"x": 7.0})).action[0] == pytest.approx(SHARE)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"axes": {"dx": "w"}}, "no axis for 'dx'"),
        ({"axes": {"wrist": "x"}}, "no such part"),
        ({"linear_speed": 0.31}, "up to 0.3 m/s"),
        ({"linear_speed": float("nan")}, "linear_speed"),
        ({"dead_band": 1.0}, "dead_band"),
        ({"release": -1.0}, "release"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(InvalidSetting, match=words):
        command(Reading(), **settings)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_deflection_that_is_no_number_is_refused(value):
    with pytest.raises(TeleoperatorUnavailable):
        command(Reading({"x": value}))


def test_release_holds_at_rest_before_it_gives_back():
    motion = MotionCommand(MotionSettings(release=0.3), SPEC)
    assert motion.of(Reading({"x": 1.0}), 0.0).held
    passing = motion.of(Reading({"x": 0.0}), 0.2)
    assert passing.held and not passing.action.any()
    assert not motion.of(Reading(), 0.31).held


def test_dead_man_switch_decides_alone_where_there_is_one():
    assert not command(Reading({"x": 1.0}, is_held=False)).held
    assert command(Reading({}, is_held=True)).held


# the letters of a terminal


@pytest.fixture
def keyboard(monkeypatch):
    found = KeyboardHand(monkeypatch)
    found.device.connect()
    yield found
    found.end()


def test_letter_drives_for_a_pulse_and_repeats_go_on(keyboard):
    for _ in range(10):
        keyboard.type(b"w")
        keyboard.now += 0.04
        assert keyboard.device.read().axes["x"] == 1.0
    keyboard.now += PULSE
    assert keyboard.device.read().axes["x"] == 0.0


def test_opposite_letters_cancel_and_others_add(keyboard):
    keyboard.type(b"WSae")
    axes = keyboard.device.read().axes
    assert (axes["x"], axes["y"], axes["yaw"]) == (0.0, 1.0, -1.0)


@pytest.mark.parametrize("typed", [b"\x1b[A", b"\x1bOD", b"\x1b[1;5D", b"\xff\x00\xc3\xa4", b"\x1b", b"\x1b[15~"])
def test_arrow_function_and_foreign_keys_are_no_letters(keyboard, typed):
    for part in (typed, typed[:2], typed[2:]):
        keyboard.type(part)
        reading = keyboard.device.read()
        assert not any(reading.axes.values()) and reading.presses == ()


def test_space_stops_whatever_was_typed_before(keyboard):
    for before in (b"\x1b", b"\x1b[", b"\x1bO", b"x" * 200):
        keyboard.type(before)
        keyboard.device.read()
        keyboard.type(b" ")
        assert keyboard.device.read().presses == ("stop",)


def test_terminal_gets_its_modes_back(keyboard):
    keyboard.device.close()
    before = termios.tcgetattr(keyboard.slave)
    keyboard.device.connect()
    assert termios.tcgetattr(keyboard.slave) != before
    keyboard.device.close()
    assert termios.tcgetattr(keyboard.slave) == before


# the bytes of a SpaceMouse


def read(mouse):
    return {axis: round(value, 3) for axis, value in mouse.read().axes.items() if value}


def test_spacemouse_axes_follow_the_right_hand(monkeypatch):
    mouse, bus = spacemouse(monkeypatch)
    mouse.connect()
    for index, wanted in enumerate(["y", "x", "z", "pitch", "roll", "yaw"]):
        bus.push(*(350 if index == each else 0 for each in range(6)))
        assert read(mouse) == {wanted: -1.0}


@pytest.mark.parametrize("extra", [b"", b"\x00"])
def test_wireless_spacemouse_sends_six_axes_in_one_report(monkeypatch, extra):
    mouse, bus = spacemouse(monkeypatch, SpaceMouseBus(product=0xC62E))
    mouse.connect()
    bus.reports.append(bytes.fromhex("01 5e01 0000 a2fe 0000 0000 af00") + extra)
    assert read(mouse) == {"y": -1.0, "z": 1.0, "yaw": -0.5}


def test_spacemouse_ignores_short_and_foreign_reports(monkeypatch):
    mouse, bus = spacemouse(monkeypatch)
    mouse.connect()
    bus.reports += [b"\x01\xff", b"\x17\x64", b"\x03", b"\x00" * 64, bytes([2, 1, 2])]
    assert read(mouse) == {}


@pytest.mark.slow
@given(st.lists(st.binary(min_size=1, max_size=64), max_size=30))
def test_spacemouse_survives_any_reports(reports):
    with pytest.MonkeyPatch.context() as patch:
        mouse, bus = spacemouse(patch)
        mouse.connect()
        bus.reports = [*reports]
        reading = mouse.read()
    assert all(-1.0 <= value <= 1.0 for value in reading.axes.values())


def test_spacemouse_buttons_close_and_open_when_they_go_down(monkeypatch):
    mouse, bus = spacemouse(monkeypatch)
    mouse.connect()
    for buttons in (1, 1, 3, 0):
        bus.press(buttons)
    assert mouse.read().presses == ("close_gripper", "open_gripper")


def test_spacemouse_flood_does_not_keep_the_reader(monkeypatch):
    mouse, bus = spacemouse(monkeypatch)
    mouse.connect()
    monkeypatch.setattr(bus, "read", lambda length, timeout_ms=0: [1, 94, 1, 0, 0, 0, 0])
    assert read(mouse) == {"y": -1.0}


def test_deflected_spacemouse_that_falls_silent_is_lost(monkeypatch):
    bus = SpaceMouseBus()
    mouse, _ = spacemouse(monkeypatch, bus, clock=lambda: bus.waits)
    mouse.connect()
    bus.push(0, -200, 0, 0, 0, 0)
    mouse.read()
    with pytest.raises(TeleoperatorUnavailable, match=r"sent nothing for 0\.1 s"):
        for _ in range(7):  # 20 ms each
            mouse.read()
    bus.push(0, -3, 0, 0, 0, 0)  # a worn-out spring, within the dead-band
    for _ in range(20):
        mouse.read()


def test_spacemouse_is_chosen_by_its_serial_number(monkeypatch):
    bus = SpaceMouseBus("A1", "B2")
    with pytest.raises(TeleoperatorUnavailable, match=r"several.*\n.*A1.*B2"):
        spacemouse(monkeypatch, bus)[0].connect()
    spacemouse(monkeypatch, bus, serial="B2")[0].connect()
    assert bus.opened == [b"/dev/hidraw1"]
    with pytest.raises(TeleoperatorUnavailable, match=r"no SpaceMouse.*\n.*A1"):
        spacemouse(monkeypatch, bus, serial="C3")[0].connect()


def test_stand_in_of_hid_has_the_calls_of_the_real_one():
    hid = pytest.importorskip("hidraw")
    bus = SpaceMouseBus()
    for name in ("open_path", "set_nonblocking", "read", "close"):
        assert hasattr(hid.device(), name) and hasattr(bus, name)
    with pytest.raises(OSError, match="open failed"):
        hid.device().open_path(b"/dev/none")
    assert hid.enumerate(0xFFFF, 0xFFFF) == []


# a gamepad


@pytest.fixture
def pad(monkeypatch):
    found = SDLHand(monkeypatch)
    yield found
    found.device.close()
    found.end()


def press(hand, name, down=True):
    mapping = hand.device._controllers.Controller(0).get_mapping()
    hand.sdl.SDL_JoystickSetVirtualButton(hand.pad, int(mapping[name][1:]), down)


def test_gamepad_presses_count_when_buttons_go_down(pad):
    pad.device.connect()
    pad.device.read()
    press(pad, "a")
    press(pad, "rightshoulder")
    reading = pad.device.read()
    assert reading.presses == ("toggle_gripper",) and reading.is_held
    assert pad.device.read().presses == ()  # it is still down
    press(pad, "rightshoulder", down=False)
    press(pad, "b")
    press(pad, "dpup")
    reading = pad.device.read()
    assert reading.presses == ("stop", "success") and not reading.is_held


def test_buttons_that_are_down_at_the_start_were_not_pressed(pad):
    pad.device.connect()
    press(pad, "a")
    press(pad, "b")
    assert pad.device.read().presses == ()


def test_a_gamepad_that_is_not_there_is_named(pad):
    with pytest.raises(TeleoperatorUnavailable, match=r"There is no gamepad 1(.|\n)*got: +1 gamepads"):
        type(pad.device)(GamepadSettings(index=1)).connect()


def test_sdl_knows_every_button_by_its_name(pad):
    pad.device.connect()
    pad.device.read()
    for name in ("a", "b", "start", "rightshoulder", "dpup", "dpdown", "dpleft"):
        press(pad, name)
    reading = pad.device.read()
    assert reading.is_held and set(reading.presses) == {"stop", "toggle_gripper", "start", "success", "failure", "discard"}


# a device at the operator's state


class Scripted(Teleoperator):
    """Device whose readings a test writes."""

    options = MotionSettings
    keys = "none"

    def __init__(self, **settings):
        super().__init__(MotionSettings(**settings))
        self.reading, self.presses, self.is_plugged, self.opened, self.reads = Reading(is_held=False), [], True, 0, 0

    def connect(self):
        if not self.is_plugged:
            raise TeleoperatorUnavailable("There is no device.")
        self.opened += 1
        return "a device"

    def read(self):
        time.sleep(0.002)
        self.reads += 1
        if not self.is_plugged:
            raise OSError(19, "No such device")
        presses, self.presses = tuple(self.presses), []
        return Reading(self.reading.axes, self.reading.is_held, presses)

    def close(self):
        pass

    def drive(self, **axes):
        seen = self.reads
        while self.reads < seen + 2:  # released once, as a device has to be
            time.sleep(0.001)
        self.reading = Reading(axes, True)


class Seat:
    """A device beside an operator's page that says nothing but that it is there."""

    def __init__(self, monkeypatch, *, is_operator=False):
        monkeypatch.setattr("robo_real.console.operator_state.WATCH_SILENCE", 20.0)
        monkeypatch.setattr("robo_real.teleoperation.session.RETRY", 0.01)
        self.state, self.hold, self.said, self.rearmed = OperatorState(), HoldAction(SPEC), [], threading.Event()
        self.stops = []
        if not is_operator:
            self.state.acquire(self)
        self.device = Scripted()
        self.session = TeleoperatorSession(
            self.device,
            self.state,
            self.hold,
            SPEC,
            stop=self.stops.append,
            rearm=self.rearmed.set,
            notify=self.said.append,
            is_operator=is_operator,
        )
        self.state.begin()

    def until(self, test, within=10.0):
        """Returns the time [s] until a decision passes."""
        begun = time.monotonic()
        while not test(self.state.decision()):
            assert time.monotonic() - begun < within, self.state.decision()
            time.sleep(0.001)
        return time.monotonic() - begun


@pytest.fixture(params=[False, True], ids=["beside a page", "as operator"])
def seat(request, monkeypatch):
    found = Seat(monkeypatch, is_operator=request.param)
    yield found
    found.session.close()


def kind(*kinds):
    return lambda decision: decision.kind in kinds


def test_device_commands_while_it_is_held(seat):
    seat.device.drive(x=1.0)
    seat.until(lambda decision: decision.kind is DecisionKind.PERSON and decision.action[0] == pytest.approx(SHARE, rel=1e-2))
    assert not seat.state.decision().moves_gripper, "it was not pressed: the gripper stays"
    seat.device.reading = Reading({"x": 1.0}, False)
    seat.until(kind(DecisionKind.POLICY))


@pytest.mark.slow
def test_unplugged_device_holds_at_once_then_stops(seat):
    seat.device.drive(x=1.0)
    seat.until(kind(DecisionKind.PERSON))
    seat.device.is_plugged = False
    assert seat.until(kind(DecisionKind.HOLD)) < 0.1
    seat.until(kind(DecisionKind.STOP))
    assert "a device was lost: OSError: [Errno 19] No such device" in seat.state.stopper
    assert any("a device was lost" in message for message in seat.said)


def test_loss_of_a_device_at_rest_matters_if_it_is_the_operator(seat):
    seat.until(kind(DecisionKind.POLICY))
    seat.device.is_plugged = False
    if seat.state.is_operator(seat.session):
        assert seat.until(kind(DecisionKind.HOLD)) < 0.1
        assert "a device was lost" in seat.state.stopper
    else:
        time.sleep(0.1)
        assert seat.state.decision().kind is DecisionKind.POLICY, "the page is still there"


def test_device_that_is_back_counts_after_its_release(seat):
    seat.device.drive(x=1.0)
    seat.until(kind(DecisionKind.PERSON))
    seat.device.is_plugged = False
    seat.until(kind(DecisionKind.HOLD))
    seat.device.is_plugged = True
    while seat.device.opened < 2:
        time.sleep(0.001)
    time.sleep(0.05)
    assert seat.state.decision().kind is DecisionKind.HOLD, "its switch is still held"
    seat.device.reading = Reading(is_held=False)
    time.sleep(0.05)
    assert seat.state.decision().kind is DecisionKind.HOLD, "the policy does not act again"
    seat.device.drive(x=1.0)
    seat.until(kind(DecisionKind.PERSON))


def test_device_that_hangs_is_a_loss(seat, monkeypatch):
    seat.device.drive(x=1.0)
    seat.until(kind(DecisionKind.PERSON))
    left = threading.Event()
    monkeypatch.setattr(seat.device, "read", lambda: left.wait(10) and Reading())
    assert seat.until(kind(DecisionKind.HOLD)) > HELD_SILENCE / 2
    left.set()


def test_reading_of_nonsense_is_a_loss(seat):
    seat.device.drive(x=1.0)
    seat.until(kind(DecisionKind.PERSON))
    seat.device.drive(x=float("nan"))
    seat.until(kind(DecisionKind.HOLD))


@pytest.mark.slow
def test_device_that_keeps_failing_is_opened_now_and_then(seat, monkeypatch):
    monkeypatch.setattr("robo_real.teleoperation.session.RETRY", 0.2)
    monkeypatch.setattr(seat.device, "read", lambda: 1 / 0)
    time.sleep(1.0)
    assert 1 < seat.device.opened < 8 and len(seat.said) < 16


@pytest.mark.slow
def test_page_that_closes_ends_the_device_too(monkeypatch):
    seat = Seat(monkeypatch)
    seat.device.drive(x=1.0)
    seat.until(kind(DecisionKind.PERSON))
    seat.state.release(seat)
    seat.until(kind(DecisionKind.STOP))
    seat.session.close()


def test_gripper_toggles_from_the_last_command(seat):
    seat.hold.grip = -1.0
    seat.device.drive()
    seat.device.presses = ["toggle_gripper"]
    seat.until(lambda decision: decision.kind is DecisionKind.PERSON and decision.moves_gripper)
    assert seat.state.decision().action[-1] == 1.0
    seat.device.presses = ["toggle_gripper"]
    seat.until(lambda decision: decision.kind is DecisionKind.PERSON and decision.action[-1] == -1.0)
    seat.device.reading = Reading(is_held=False)
    seat.until(kind(DecisionKind.POLICY))
    seat.device.drive()
    seat.until(kind(DecisionKind.PERSON))
    assert not seat.state.decision().moves_gripper, "the policy may have moved it meanwhile"


def test_presses_start_label_stop_and_rearm(seat):
    seat.device.presses = ["success"]
    end = time.monotonic() + 10
    while not (label := seat.state.pop_label()) and time.monotonic() < end:
        time.sleep(0.001)
    assert label == "success"
    seat.state.end()
    seat.device.presses = ["start"]
    assert seat.state.wait_for_start(10)
    seat.device.presses = ["stop"]  # between two episodes, when no control loop looks
    end = time.monotonic() + 10
    while seat.state.stop_sent in (np.inf, -np.inf) and time.monotonic() < end:
        time.sleep(0.001)
    assert seat.stops == ["the operator at the console"], "the robot is stopped"
    seat.state.begin()
    assert seat.state.decision().kind is DecisionKind.STOP
    seat.state.end()
    seat.device.presses = ["rearm"]
    assert seat.rearmed.wait(10)
    end = time.monotonic() + 10
    while not seat.state.wait_for_start(0.01) and time.monotonic() < end:
        seat.device.presses = ["start"]
    seat.state.begin()
    assert seat.state.decision().kind is not DecisionKind.STOP


def test_device_that_cannot_be_opened_is_an_error_at_once():
    device = Scripted()
    device.is_plugged = False
    with pytest.raises(TeleoperatorUnavailable, match="no device"):
        TeleoperatorSession(
            device, OperatorState(), HoldAction(SPEC), SPEC, stop=print, rearm=lambda: None, notify=lambda _: None
        )


# the whole of it, against the twin


class Keeps:
    """Stands for the dataset of a console."""

    def __init__(self):
        self.ended = []

    def begin(self, rollout):
        pass

    def step(self, transition):
        pass

    def end(self, rollout):
        self.ended.append(rollout)


@pytest.mark.slow
def test_device_drives_the_arm_and_its_loss_ends_the_episode(serve, unhurried, monkeypatch):
    server = serve(unhurried, image_size=32)
    console, device, kept = RobotConsole(server.url), Scripted(), Keeps()
    console.drive_with(device)
    console.keep(kept, {})
    thread = console.start()
    try:
        page = Page(console)
        page.told("welcome")
        page.say(kind="sit")
        page.until(lambda told: told["operator"] == "you")
        start(page)
        before = server.application.robot.driver.read().position
        device.drive(y=1.0)
        page.until(lambda told: told["human_steps"] >= 8)
        assert server.application.robot.driver.read().position[1] - before[1] > 0.005
        sent, apply = [], console.environment.robot.apply
        monkeypatch.setattr(console.environment.robot, "apply", lambda action: sent.append(action) or apply(action))
        device.is_plugged = False
        del sent[:]
        told = page.until(lambda told: told["state"] == "waiting" and told["health"]["mode"] == "stopped")
        assert "operator_lost" in told["message"] and "a device was lost" in told["device"]
    finally:
        console.close()
        thread.join(20)
    episode = kept.ended[0].episode()
    held = np.flatnonzero(episode.sources == ActionSource.GUARD)
    moving = [index for index, action in enumerate(sent) if np.abs(action[:4]).max() > 1e-6]
    assert len(sent) > 2 and len(moving) <= 2 and max(moving, default=0) < 2, "at 20 Hz: nothing moves 0.1 s after the loss"
    assert len(held) > 2 and np.abs(episode.actions[held][:, :4]).max() < 1e-3, "nothing is commanded after the loss"
    path = episode.observations["end_effector_position"]
    assert np.abs(path[-1] - path[held[0] + 2]).max() < 0.002, "the arm stands"
    assert held[0] == np.flatnonzero(episode.sources == ActionSource.HUMAN)[-1] + 1
