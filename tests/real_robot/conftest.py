"""Robots for the tests of this folder."""

from dataclasses import replace

import pytest

from robo_real.guarded import GuardedArm
from robo_real.limits import TWIN
from robo_real.server.application import Application, RobotServer
from robo_real.serving import TwinCamera
from robo_real.twin import Twin, TwinOptions

STRICT = replace(TWIN, stop_after=1.0)


@pytest.fixture
def serve():
    """Returns a function that serves a twin at a free port; every server is closed after the test."""
    servers = []

    def served(limits=STRICT, *, plain_clients=True, auto_clear=False, **options) -> RobotServer:
        twin = Twin(TwinOptions(**options))
        robot = GuardedArm(twin, limits, spec=twin.spec, scene=twin)
        robot.connect()
        cameras = {name: TwinCamera(twin, name) for name in twin.cameras}
        server = RobotServer(Application(robot, cameras, plain_clients=plain_clients, auto_clear=auto_clear), port=0)
        server.start()
        servers.append(server)
        return server

    yield served
    for server in servers:
        server.close()
