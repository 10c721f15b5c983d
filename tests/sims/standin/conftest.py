"""Programs of the real client, each in a process of its own with a hard time limit: what breaks there breaks nothing here."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap

import pytest

from robo_sims.carla.local_server import StandIn

OPENING = """
import json, queue, sys
import carla
client = carla.Client("127.0.0.1", int(sys.argv[1]))
client.set_timeout(5.0)
world = client.get_world()
settings = world.get_settings()
settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
world.apply_settings(settings)
library, spawn_points = world.get_blueprint_library(), world.get_map().get_spawn_points()
def spawn(name, where, to=None, **attributes):
    blueprint = library.find(name)
    for key, value in attributes.items():
        blueprint.set_attribute(key, str(value))
    return world.spawn_actor(blueprint, where, to) if to else world.spawn_actor(blueprint, where)
def car(where=spawn_points[0], **attributes):
    return spawn("vehicle.tesla.model3", where, **attributes)
result = {}
"""
HELPERS = """
def at(x, y, z=0.3, yaw=0.0):
    return carla.Transform(carla.Location(x, y, z), carla.Rotation(yaw=yaw))
def place(actor):
    pose = actor.get_transform()
    return [pose.location.x, pose.location.y, pose.location.z, pose.rotation.yaw]
def speed(actor):
    velocity = actor.get_velocity()
    return [velocity.x, velocity.y, velocity.z]
def ticks(count):
    for _ in range(count):
        world.tick()
V = carla.Vector3D
"""
CLOSING = "\nprint('RESULT' + json.dumps(result))\nsys.stdout.flush()\nimport os\nos._exit(0)\n"
LIMIT = 30.0
"""[s] of a program."""


def ran(program: str, server: StandIn, opening: str = OPENING, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", opening + textwrap.dedent(program) + CLOSING, str(server.port), str(server.process.pid)]
    path = os.pathsep.join(filter(None, sys.path))
    with tempfile.TemporaryDirectory() as cache:  # processes that write the same file at once read it torn
        environment = os.environ | {"PYTHONPATH": path, "CARLA_CACHE_DIR": cache}
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=environment)


@pytest.fixture
def client():
    """Runs a program against a fresh server; returns what it put into `result`."""
    pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")

    def run(program: str, opening: str = OPENING, limit: float = LIMIT, **options):
        with StandIn(**options) as server:
            done = ran(program, server, opening, limit)
            assert done.returncode == 0, f"{done.stderr}\n{done.stdout}\nserver:\n{server.said()}"
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
            result = json.loads(lines[-1].removeprefix("RESULT"))
            result["said"] = server.said()
            return result

    return run


@pytest.fixture
def program(client):
    """Runs a program with helpers for poses, speeds and ticks."""
    return lambda text, **options: client(HELPERS + "\n" + textwrap.dedent(text), **options)
