"""The driver of Robotiq grippers against a peer that speaks the URCap's protocol at a socket."""

import socketserver
import sys
import threading
import time
from pathlib import Path

import pytest

from robo_real.arm import ArmTarget
from robo_real.drivers.robotiq import Robotiq, RobotiqOptions
from robo_real.drivers.ur import UR, UROptions
from robo_rl.errors import InvalidSetting, RobotUnavailable


class Gripper(socketserver.ThreadingTCPServer):
    """The other end: variables, an activation that takes a while, fingers that move by 40 counts a reading."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, ending=b"\n", **variables):
        super().__init__(("127.0.0.1", 0), Handler)
        self.variables = {"ACT": 0, "STA": 0, "POS": 0, "PRE": 0, "GTO": 0, "SPE": 0, "FOR": 0, "ATR": 0, "FLT": 0} | variables
        self.ending, self.requests, self.activating, self.sockets, self.silent = ending, [], 0, [], False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, line: str) -> bytes:
        self.requests.append(line)
        verb, *words = line.split()
        held = self.variables
        if verb == "GET":
            if held["STA"] == 1:
                self.activating -= 1
                held["STA"] = 3 if self.activating <= 0 else 1
            if words[0] == "POS" and held["GTO"] and held["STA"] == 3:
                step = max(-40, min(40, held["PRE"] - held["POS"]))
                held["POS"] += step
            return f"{words[0]} {held[words[0]]}".encode() + self.ending
        settings = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        if "POS" in settings:
            settings["PRE"] = settings.pop("POS")
        held |= settings
        if settings.get("ACT") == 0:
            held |= {"STA": 0, "FLT": 0, "GTO": 0}
        elif settings.get("ACT") == 1 and held["STA"] == 0:
            held["STA"], self.activating = 1, 3
        return b"ack"


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.sockets.append(self.request)
        kept = b""
        while part := self.request.recv(1024):
            kept += part
            while b"\n" in kept:
                line, kept = kept.split(b"\n", 1)
                if not self.server.silent:
                    self.request.sendall(self.server.answer(line.decode()))


@pytest.fixture(params=[b"\n", b""], ids=["line feed", "none"])
def peer(request):
    found = Gripper(request.param)
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def gripper(peer):
    found = Robotiq("127.0.0.1", RobotiqOptions(stroke=0.085, speed=1.0, force=0.5), port=peer.server_address[1])
    yield found
    found.close()


def wait_until(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


@pytest.mark.slow
def test_gripper_is_activated_once_and_follows(peer, gripper):
    gripper.connect()
    assert peer.requests[:3] == ["GET STA", "SET ACT 0 ATR 0", "GET STA"] and "SET ACT 1" in peer.requests
    assert peer.variables["STA"] == 3 and gripper.opening == pytest.approx(0.085) and gripper.fault is None
    gripper.go(0.0)
    wait_until(lambda: gripper.opening == 0.0)
    assert [line for line in peer.requests if "POS" in line and line.startswith("SET")] == ["SET POS 255 SPE 255 FOR 128 GTO 1"]
    gripper.go(0.0425)
    wait_until(lambda: abs(gripper.opening - 0.0425) < 0.0003)
    gripper.go(1.0)  # beyond the stroke
    wait_until(lambda: gripper.opening == pytest.approx(0.085))


@pytest.mark.slow
def test_active_gripper_is_not_activated_again(gripper, peer):
    peer.variables |= {"ACT": 1, "STA": 3}
    gripper.connect()
    assert not [line for line in peer.requests if "ACT" in line]


@pytest.mark.slow
@pytest.mark.real_time
def test_go_returns_at_once_while_the_gripper_is_silent(gripper, peer):
    gripper.connect()
    peer.silent = True
    time.sleep(0.1)
    start = time.monotonic()
    gripper.go(0.02)
    _ = gripper.opening
    assert time.monotonic() - start < 0.05


@pytest.mark.real_time
def test_silence_and_a_cut_link_are_reported_in_time(gripper, peer):
    gripper.connect()
    peer.silent = True
    start = time.monotonic()
    with pytest.raises(RobotUnavailable, match="link to the gripper is lost"):
        while time.monotonic() - start < 10:
            _ = gripper.opening
            time.sleep(0.01)
    assert time.monotonic() - start < 5


@pytest.mark.slow
def test_closed_connection_is_reported(gripper, peer):
    gripper.connect()
    for connection in peer.sockets:
        connection.close()
    wait_until(lambda: not gripper._thread.is_alive())
    with pytest.raises(RobotUnavailable, match="link to the gripper is lost"):
        gripper.go(0.01)


@pytest.mark.slow
def test_fault_is_named_and_ends_with_a_new_activation(gripper, peer):
    gripper.connect()
    peer.variables["FLT"] = 14
    wait_until(lambda: gripper.fault == "gripper: overcurrent")
    gripper.recover()
    assert gripper.fault is None and peer.variables["STA"] == 3


def test_absent_gripper_is_one_error():
    with pytest.raises(RobotUnavailable, match=r"The gripper does not answer(.|\n)*URCap"):
        Robotiq("127.0.0.1", port=1).connect()


@pytest.mark.slow
def test_nonsense_is_refused(gripper, peer):
    peer.variables |= {"STA": 3, "POS": 300}
    with pytest.raises(RobotUnavailable, match="POS 300"):
        gripper.connect()


@pytest.mark.parametrize("setting", [{"stroke": 0.0}, {"speed": 1.1}, {"force": -0.1}, {"timeout": float("nan")}])
def test_options_out_of_range_are_refused(setting):
    with pytest.raises(InvalidSetting, match=next(iter(setting))):
        RobotiqOptions(**setting)


@pytest.mark.slow
def test_ur_measures_and_moves_its_gripper(peer, monkeypatch):
    """The driver's own part: openings in its measurements and targets, faults, and an end with the arm."""
    pytest.importorskip("rtde_receive", reason="pip install ur_rtde")
    sys.path.insert(0, str(Path(__file__).parent))
    from rtde_peer import Peer

    robot = Peer()
    arm = UR(UROptions(address=robot.address, timeout=20.0, gripper="robotiq", gripper_stroke=0.05))
    monkeypatch.setattr(arm._gripper, "_address", ("127.0.0.1", peer.server_address[1]))
    try:
        arm.connect()
        assert arm.has_gripper and arm.read().opening == pytest.approx(0.05)
        state = arm.read()
        arm.move(ArmTarget(state.position, state.quaternion, 0.0))
        wait_until(lambda: arm.read().opening == 0.0)
        peer.variables["FLT"] = 12
        wait_until(lambda: arm.read().fault == "gripper: internal fault")
        arm.recover()
        assert arm.read().fault is None
    finally:
        arm.close()
        robot.close()
    assert not UR(UROptions()).has_gripper
