"""Connections without bound take no stop away: 10,000 of them at the console and at the robot's server."""

import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from console_operators import Page, start

from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.server import http_supervisor
from robo_rl.system.pages.connections import MOST_CONNECTIONS, PER_TURN

MANY = 10_000
DESCRIPTORS = 1024
"""The usual limit of a process."""
OPEN_FILES = MOST_CONNECTIONS + http_supervisor.CHANNELS + 4 * PER_TURN + 12
"""Of a robot's HTTP process: a turn of its thread may have accepted connections, and closed others, that are still open."""
PROGRAM = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from robo_real.console.robot_console import RobotConsole
console = RobotConsole(sys.argv[1])
print(console.server.port, console.server.token, flush=True)
console.run()
"""
CROWD = """
import resource, socket, sys, time
from contextlib import suppress
port, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
whole = "GET /robo/health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
websocket = (
    "GET /socket HTTP/1.1\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
    f"Sec-WebSocket-Key: {'A' * 22}==\\r\\nHost: 127.0.0.1:{port}\\r\\nOrigin: http://127.0.0.1:{port}\\r\\n\\r\\n"
)
words = "", "POST /robo/stop HTTP/1.1\\r\\nHost: loc", whole, websocket
links = []
for number in range(count):
    with suppress(OSError):
        links.append(socket.create_connection(("127.0.0.1", port), 60))
        links[-1].sendall(words[number % 4].encode())
    if number % 500 == 499:
        print(len(links), flush=True)
time.sleep(60)
"""
"""Strangers who say nothing, half a header, a whole request, or open a websocket without a token, and stay."""


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_requests_that_wait_take_no_connection_of_a_stop(serve):
    server = serve()
    leaves = threading.Event()
    server.application.franka_routes.commands["/startimp"] = lambda _: (leaves.wait(60), "Started")[1]
    with ExitStack() as stack:
        for _ in range(400):
            link = stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), 30)))
            with suppress(OSError):
                link.sendall(b"POST /startimp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as link:
            link.sendall(
                b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            )
            assert link.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert server.application.robot.guard.mode == "stopped" and not leaves.is_set()
        assert descriptors(server.http.pid) < OPEN_FILES
        leaves.set()


@contextmanager
def running(program, *arguments):
    with subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def come(crowd):
    """Returns how many strangers have come, None without news."""
    return int(crowd.stdout.readline()) if select.select([crowd.stdout], [], [], 0)[0] else None


needs_descriptors = pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MANY + 1000, reason="this user may not open 11,000 files"
)


@pytest.mark.slow
@needs_descriptors
def test_stop_of_a_page_answers_beside_ten_thousand_connections(serve):
    server = serve(replace(TWIN, stop_after=60.0), image_size=32)
    with running(PROGRAM, server.url) as console:
        assert select.select([console.stdout], [], [], 60)[0]
        port, token = console.stdout.readline().split()
        page = Page(SimpleNamespace(server=SimpleNamespace(port=int(port), token=token)))
        page.say(kind="sit")
        page.until(lambda told: told["operator"] == "you")
        start(page)
        came = most = 0
        with running(CROWD, port, MANY) as crowd:
            while came < MANY:
                page.told("status")
                most = max(most, descriptors(console.pid))
                came = come(crowd) or came
            guard = server.application.robot.guard
            stops, began = guard.stops, time.monotonic()
            page.say(kind="stop")
            while guard.stops == stops:
                page.told("status")
                assert time.monotonic() - began < 10
            print(f"console: stopped after {1000 * (time.monotonic() - began):.0f} ms, at most {most} files open")
        page.until(lambda told: told["health"]["mode"] == "stopped")
        page.socket.close()
        assert most < MOST_CONNECTIONS + 6 * PER_TURN + 100 < DESCRIPTORS / 2, "the rest is for what the console writes"
        console.kill()
        assert console.stderr.read() == "", "nor is the terminal flooded"


@pytest.mark.slow
@needs_descriptors
def test_robot_stops_beside_ten_thousand_connections(serve):
    server = serve(replace(TWIN, stop_after=60.0), image_size=32)
    guard, client = server.application.robot.guard, RemoteRobot(server.url)
    came = most = 0
    with running(CROWD, server.port, MANY) as crowd:
        while came < MANY:
            came = come(crowd) or came
            most = max(most, descriptors(server.http.pid))
            time.sleep(0.01)
        for robot in (client, RemoteRobot(server.url)):
            stops, began = guard.stops, time.monotonic()
            robot.stop("a red button")
            assert guard.stops == stops + 1 and time.monotonic() - began < 10
            print(f"robot: stopped after {1000 * (time.monotonic() - began):.0f} ms, at most {most} files open")
            robot.close()
    assert most < OPEN_FILES
