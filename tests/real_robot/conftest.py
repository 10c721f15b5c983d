"""Robots for the tests of this folder. What is promised in a robot's time is tested on a clock that passes only while
someone waits on it: a slow or busy machine changes nothing then."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import FaultyTwin

from robo_real.clock import ManualClock
from robo_real.environment import RobotEnv
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.server.application import Application, RobotServer
from robo_real.serving import DriverCamera
from robo_real.twin import Twin, TwinOptions

STRICT = replace(TWIN, stop_after=1.0)


IN_ITS_OWN_TIME = {"serve_in_step", "unhurried"}
"""Fixtures by which a served robot's clock, or its limits, wait for whoever is slow."""


def pytest_itemcollected(item):
    """A test that serves a robot by the wall's clock, with the limits of a real one, runs alone."""
    fixtures = {*getattr(item, "fixturenames", ())}
    if fixtures & {"serve", "served"} and not fixtures & IN_ITS_OWN_TIME:
        item.add_marker("real_time")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A call over the link may take long: what is too long for a robot is not what these tests are about."""
    monkeypatch.setattr("robo_real.remote_robot.TIMEOUT", 20.0)


@pytest.fixture
def serve():
    """Returns a function that serves a twin at a free port; every server is closed after the test."""
    servers = []

    def served(limits=STRICT, *, plain_clients=True, auto_clear=False, clock=None, log=None, **options) -> RobotServer:
        twin = FaultyTwin(Twin(TwinOptions(**options), clock))
        robot = GuardedArm(twin, limits, spec=twin.spec, scene=twin, log=log)
        robot.connect()
        cameras = {name: DriverCamera(twin, name) for name in twin.cameras}
        server = RobotServer(Application(robot, cameras, plain_clients=plain_clients, auto_clear=auto_clear), port=0)
        server.start()
        servers.append(server)
        return server

    yield served
    for server in servers:
        server.close()


@pytest.fixture
def serve_in_step(serve):
    """Returns a function that serves a twin whose time passes only while a client of `beside` waits, or a test does."""
    return lambda *limits, **options: serve(*limits, clock=ManualClock(), **options)


@pytest.fixture
def unhurried(monkeypatch):
    """Returns limits, and lets people and control loops be so late, that a busy machine ends no episode of a console."""
    monkeypatch.setattr("robo_real.environment.LATE_CYCLES", 10_000)
    monkeypatch.setattr("robo_real.console.operator_state.HELD_SILENCE", 5.0)
    monkeypatch.setattr("robo_real.console.operator_state.ASLEEP", 10.0)
    monkeypatch.setattr("robo_real.console.session.MOST_LAG", 5.0)
    monkeypatch.setattr("robo_real.console.operator_state.WATCH_SILENCE", 20.0)
    return replace(TWIN, command_age=5.0, state_age=5.0, late_in_a_row=1000, stop_after=60.0)


@pytest.fixture
def beside():
    """Returns a function that makes an environment over a served twin, by the twin's own clock."""

    def made(server) -> RobotEnv:
        robot = RemoteRobot(server.url)
        robot.clock = server.application.robot.clock
        return RobotEnv(robot, robot)

    return made
