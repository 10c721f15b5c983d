"""A driver that hangs in any of its calls stops neither watchdog, nor the answer to a stop, nor the end of the program."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from robo_real import deadline, ticker, watchdog
from robo_real.arm import ArmTarget
from robo_real.audit_log import AuditLog
from robo_real.deadline import DriverHangs, HoldThread, within
from robo_real.drivers.fake import FakeArm
from robo_real.drivers.ur import UR
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.server.application import Application, RobotServer
from robo_rl.errors import RobotError, RobotUnavailable

LIMITS = replace(TWIN, stop_after=0.5)
CALLS = ("read", "move", "hold", "close")
LONG = 20.0
"""[s] that no test waits"""


class Hanging(FakeArm):
    """Hangs in the named calls until it is let go; a thread of the guard's sends it set points."""

    attach = None

    def __init__(self):
        super().__init__()
        self.hangs, self.let_go, self.entered = set(), threading.Event(), threading.Event()

    def _call(self, name, *arguments):
        if name in self.hangs:
            self.entered.set()
            self.let_go.wait()
        return getattr(FakeArm, name)(self, *arguments)

    def connect(self):
        self._call("connect")

    def read(self):
        return self._call("read")

    def move(self, target):
        self._call("move", target)

    def hold(self):
        self._call("hold")

    def close(self):
        self._call("close")


@pytest.fixture
def robot(monkeypatch):
    monkeypatch.setattr(deadline, "HANGS", 0.2)
    for module in (deadline, ticker, watchdog):
        monkeypatch.setattr(module, "TURN", 0.3)
    monkeypatch.setattr("robo_real.guarded_arm.CLOSES", 0.5)
    found = GuardedArm(Hanging(), LIMITS)
    found.connect()
    yield found
    found.driver.let_go.set()
    found.close()


def until(holds, seconds=LONG):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def in_thread(work):
    def quietly():
        with suppress(RobotError):
            work()

    threading.Thread(target=quietly, daemon=True).start()


def commands(robot):
    """A client that commands as long as it is answered."""
    while robot.guard.mode is not Mode.STOPPED:
        robot.observe()
        robot.apply([0.2, 0, 0, 0, 1])
        time.sleep(0.02)


@pytest.mark.parametrize("hangs", [("read",), ("move",), ("hold",), ("read", "hold"), ("move", "hold"), CALLS], ids="-".join)
@pytest.mark.parametrize("client", ["action", "pose"])
def test_arm_whose_driver_hangs_can_be_stopped(robot, hangs, client):
    robot.arm()
    if client == "action":
        in_thread(lambda: commands(robot))
    else:
        state = robot.driver.read()
        robot.move(ArmTarget(np.add(state.position, [0, 0, 0.03]), state.quaternion, 0.0))
    until(lambda: robot.guard.mode is Mode.RUNNING)
    robot.driver.hangs = set(hangs)
    if client == "pose":
        in_thread(lambda: robot.move(ArmTarget(np.array([0.5, 0.1, 0.3]), (0, 1, 0, 0), 0.0)))
    if client == "action" and hangs == ("hold",):
        robot.pause()  # only then is it held
    if not (client == "pose" and hangs == ("hold",)):  # an arm that moves as it is told needs no hold
        until(lambda: robot.guard.mode in (Mode.STOPPED, Mode.FAULT))
        assert robot.guard.reason in ("driver_hangs", "watchdog", "robot_lost", "state_late", "late")
    begun = time.monotonic()
    robot.stop("a red button")
    assert time.monotonic() - begun < 5 and robot.guard.mode in (Mode.STOPPED, Mode.FAULT)
    robot.close()
    assert time.monotonic() - begun < LONG and robot.guard.mode in (Mode.STOPPED, Mode.FAULT)


@pytest.mark.real_time
def test_stop_over_http_is_answered_while_every_call_hangs(robot, monkeypatch):
    monkeypatch.setattr("robo_real.remote_robot.TIMEOUT", 0.5)
    server = RobotServer(Application(robot), port=0)
    server.start()
    client = RemoteRobot(server.url)
    client.connect()
    client.arm()
    client.observe()
    client.apply([0.2, 0, 0, 0, 1])
    robot.driver.hangs = set(CALLS)
    with pytest.raises(RobotError):
        client.observe()
    begun = time.monotonic()
    client._stop_client.json("/robo/stop", {"by": "a red button"}, timeout=LONG)
    assert client.client.json("/robo/health", method="GET")["mode"] in ("stopped", "fault")
    server.close()
    assert time.monotonic() - begun < LONG


def test_hold_that_hangs_is_waited_for_once_at_a_time(robot):
    robot.driver.hangs = {"hold"}
    begun = time.monotonic()
    robot.pause()
    assert time.monotonic() - begun < 5 and robot.guard.reason == "driver_hangs"
    assert [event["reason"] for event in robot.log.recent if event.get("mode") == "fault"] == ["driver_hangs"]
    robot.driver.let_go.set()
    until(robot._holding.hold)
    robot.rearm()
    assert robot.guard.mode is Mode.IDLE


def test_one_hold_answers_all_who_asked_before_it():
    held, enter, leave = [], threading.Semaphore(0), threading.Semaphore(0)

    def hold():
        held.append(threading.current_thread().name)
        enter.release()
        assert leave.acquire(timeout=LONG)

    holding = HoldThread(SimpleNamespace(hold=hold), AuditLog())
    askers = [threading.Thread(target=holding.hold) for _ in range(3)]
    askers[0].start()
    assert enter.acquire(timeout=LONG)
    for asker in askers[1:]:
        asker.start()
    until(lambda: holding._asked == 3)
    for _ in range(2):
        leave.release()
    for asker in askers:
        asker.join(LONG)
    assert held == ["hold", "hold"], "the second one, which began after both had asked, is for both"
    holding.close()


def test_a_call_within_a_time_returns_raises_or_hangs():
    assert within(LONG, lambda: 3, "three") == 3
    with pytest.raises(ZeroDivisionError):
        within(LONG, lambda: 1 // 0, "a fault")
    with pytest.raises(TimeoutError, match="its own"):
        within(LONG, lambda: (_ for _ in ()).throw(TimeoutError("its own")), "its own")
    wait = threading.Event()
    with pytest.raises(DriverHangs, match="does not return from sleep"):
        within(0.05, wait.wait, "sleep")
    wait.set()


def test_measurement_whose_time_is_no_number_is_an_error():
    arm = UR()
    values = {"getActualTCPPose": 6, "getActualTCPSpeed": 6, "getActualTCPForce": 6, "getActualQ": 6, "getActualQd": 6}
    others = {"getSafetyStatusBits": 0, "getRobotMode": 7, "getRobotStatus": 2, "isConnected": True}
    answers = {name: np.zeros(size).tolist() for name, size in values.items()} | others
    arm._receive = SimpleNamespace(getTimestamp=lambda: float("nan"), **{n: (lambda v=v: v) for n, v in answers.items()})
    with pytest.raises(RobotUnavailable, match="of no one time"):
        arm.read()


# the program

PROGRAM = """
import sys, threading
from robo_real.drivers import fake
from robo_cli.robots.serve import Serve, serve
from robo_real.limits import TWIN
from pathlib import Path

class Hanging(fake.FakeArm):
    is_simulated, limits = True, TWIN
    def __init__(self, options=None, clock=None):
        super().__init__()
        self.name = "fake"

def hang(*_):
    print("hangs", flush=True)
    threading.Event().wait()

setattr(Hanging, sys.argv[1], hang)
import robo_real.serving
robo_real.serving.load = lambda group, name: Hanging
sys.exit(serve(Serve(driver="fake", port=0, log=Path(sys.argv[2]))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("call", ["connect", "hold", "close"])
def test_served_robot_ends_at_a_signal_though_its_driver_hangs(call, number, tmp_path):
    command = [sys.executable, "-c", PROGRAM, call, str(tmp_path / "audit.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert select.select([process.stdout], [], [], 60)[0]
            process.stdout.readline()  # it serves, or hangs
            os.kill(process.pid, number)
            process.wait(40)
        finally:
            process.kill()
