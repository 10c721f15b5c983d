"""HTTP in a process of its own: floods delay no watchdog, its death stops the arm, and nothing of it is left behind."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.server import http_process, http_supervisor
from robo_real.server.messages import LENGTH, Answer, Request, receive_request, send_answer
from robo_rl.errors import RobotStopped
from robo_rl.system.pages.connections import MOST_CONNECTIONS, PER_TURN

HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
HEALTH = b"GET /robo/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def stop(body: bytes) -> bytes:
    return HEAD % (b"/robo/stop", len(body)) + body


FLOOD = """
import socket, sys, time
port, kind = int(sys.argv[1]), sys.argv[2]
head = b"POST /robo/stop HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
part = b"[" + b"0," * 500_000
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    try:
        with socket.create_connection(("127.0.0.1", port)) as link:
            if kind == "length":
                link.sendall(head + b"Content-Length: 50000000\\r\\n\\r\\n")
                for _ in range(50): link.sendall(part)
            elif kind == "chunked":
                link.sendall(head + b"Transfer-Encoding: chunked\\r\\n\\r\\n")
                for _ in range(300): link.sendall(b"%x\\r\\n" % len(part) + part + b"\\r\\n")
                link.sendall(b"0\\r\\n\\r\\n")
                link.recv(1)
            elif kind == "crumbs":
                link.sendall(head + b"Transfer-Encoding: chunked\\r\\n\\r\\n")
                for _ in range(100): link.sendall(b"1\\r\\n0\\r\\n" * 100_000)
            elif kind == "asks":
                for _ in range(5000): link.sendall(b"GET /nowhere HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n" * 200)
            else:
                body = b'{"by": ' + b"[" * 30000 + b"0" * 30000 + b"}"
                for _ in range(200): link.sendall(head + b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    except OSError:
        pass
"""


def until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.005)


def exists(pid) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] not in "ZX"
    return False


def memory(pid, entry="VmHWM") -> float:
    """Return the largest resident memory of a process so far [MiB]."""
    return int(re.search(rf"{entry}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def answer_of(link) -> tuple[int, bytes]:
    content = b""
    while b"\r\n\r\n" not in content:
        part = link.recv(1 << 16)
        assert part, "closed"
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head)[1])
    while len(body) < length:
        body += link.recv(1 << 16)
    assert len(body) == length
    return int(head.split()[1]), body


def connection(server):
    return closing(socket.create_connection(("127.0.0.1", server.port), 30))


# floods


@pytest.mark.parametrize("kind", ["length", "chunked", "crumbs", "many", "asks"])
def test_flood_delays_no_watchdog(serve, kind):
    """A client falls silent amid bodies of 50 MB, of 300 MB in chunks, in chunks of a byte, 60 kB of deep JSON, requests."""
    server = serve()
    robot, before = server.application.robot, memory(os.getpid(), "VmRSS")
    client, silent = RemoteRobot(server.url), []
    for _ in range(3):  # a busy machine may be late once
        client.rearm("test")
        client.connect()
        client.arm()
        flood = subprocess.Popen([sys.executable, "-c", FLOOD, str(server.port), kind, "1.0"])
        try:
            for _ in range(6):
                client.observe()
                client.apply([0.2, 0, 0, 0, 1])
                time.sleep(0.05)
            held = [event["number"] for event in robot.log.recent if event["event"] == "held"]
            until(lambda held=held: [e for e in robot.log.recent if e["event"] == "held" and e["number"] not in held])
        except RobotStopped as stopped:  # a twin that gets no time is stopped for this, and for nothing else
            if "velocity_contradicts_position" not in str(stopped):
                raise
            continue
        finally:
            flood.wait()
        silent.append([event["silent"] for event in robot.log.recent if event["event"] == "held"][-1])
        if silent[-1] < 0.2:
            break
    assert silent and TWIN.hold_after < min(silent) < 0.2, silent
    assert memory(server.http.pid) < 64
    assert memory(os.getpid(), "VmRSS") < before + 32
    client.close()


def test_half_open_connections_hold_no_threads(serve):
    server = serve()
    threads = set(threading.enumerate())
    with ExitStack() as stack:
        halves = [stack.enter_context(connection(server)) for _ in range(400)]
        for half in halves:
            with suppress(OSError):
                half.sendall(b"POST /robo/stop HTTP/1.1\r\nHost: ")
        with connection(server) as link:
            link.sendall(HEALTH)
            assert answer_of(link)[0] == 200
        assert set(threading.enumerate()) - threads == set()
        open_there = len(os.listdir(f"/proc/{server.http.pid}/fd"))
        assert open_there < MOST_CONNECTIONS + http_supervisor.CHANNELS + 4 * PER_TURN + 12
    assert server.application.robot.guard.mode == "idle"


def test_request_dropped_in_its_body_is_not_followed(serve):
    server = serve()
    body = b'{"by": "somebody"}'
    for dropped in range(len(body)):
        with connection(server) as link:
            link.sendall(HEAD % (b"/robo/stop", len(body)) + body[:dropped])
    with connection(server) as link:
        link.sendall(HEALTH)
        assert json.loads(answer_of(link)[1])["stops"] == 0


def test_connection_is_kept_and_requests_are_answered_in_order(serve):
    server = serve()
    with connection(server) as link:
        for _ in range(3):
            link.sendall(HEALTH)
            assert answer_of(link)[0] == 200
        link.sendall(HEALTH * 2 + HEAD % (b"/robo/stop", 2) + b"{}" + HEALTH.replace(b"/robo/health", b"/nowhere"))
        content = b""
        while content.count(b"HTTP/1.1") < 4:
            content += link.recv(1 << 16)
    assert re.findall(rb"HTTP/1.1 (\d+)", content) == [b"200", b"200", b"200", b"404"]
    assert [b'"stops":0' in part for part in content.split(b"HTTP/1.1")[1:]] == [True, True, False, False]


def test_stop_waits_for_no_other_request(serve):
    server = serve()
    entered, leaves = threading.Semaphore(0), threading.Event()
    server.application.franka_routes.commands["/startimp"] = lambda _: (entered.release(), leaves.wait(60), "Started")[2]
    with ExitStack() as stack:
        links = [stack.enter_context(connection(server)) for _ in range(http_supervisor.CHANNELS + 2)]
        for link in links:
            link.sendall(HEAD % (b"/startimp", 0))
        for _ in range(http_supervisor.CHANNELS - 1):
            assert entered.acquire(timeout=60)
        with connection(server) as link:
            link.sendall(HEAD % (b"/robo/stop", 2) + b"{}")
            status, body = answer_of(link)
        assert (status, json.loads(body)["mode"]) == (200, "stopped") and not leaves.is_set()
        leaves.set()
        assert {answer_of(link)[0] for link in links} == {200}


# the process


def test_dead_http_process_stops_arm_and_is_replaced(serve):
    server, said = serve(), []
    server.notify = said.append
    client, robot = RemoteRobot(server.url), server.application.robot
    client.connect()
    client.arm()
    client.observe()
    client.apply([0.3, 0, 0, 0, 1])
    before = server.http.pid
    os.kill(before, signal.SIGKILL)
    until(lambda: said)
    assert robot.guard.reason == "server: its HTTP process ended with status -9" and robot.watchdog.is_holding
    assert said == ["the HTTP process ended with status -9: the arm was stopped"]
    assert [event["why"] for event in robot.log.recent if event["event"] == "http_lost"] == ["ended with status -9"]
    until(lambda: server.http.pid != before)
    client.rearm("test")
    client.connect()
    client.arm()
    np.testing.assert_allclose(client.apply(np.array([0, 0, 0, 0, 1.0], np.float32)).action[:3], 0, atol=1e-6)
    client.close()


def test_stuck_http_process_is_replaced(serve, monkeypatch):
    monkeypatch.setattr(http_supervisor, "PING_PERIOD", 0.05)
    monkeypatch.setattr(http_supervisor, "STUCK", 1.0)
    server, said = serve(), []
    server.notify = said.append
    before = server.http.pid
    os.kill(before, signal.SIGSTOP)
    until(lambda: said)
    assert said == ["the HTTP process gave no sign of life for 1 s: the arm was not under way"]
    until(lambda: not exists(before))
    assert RemoteRobot(server.url).stops == 0


def test_http_process_that_dies_again_and_again_is_given_up(serve):
    server = serve()
    seen = set()
    while not server.http.is_lost.is_set():
        if (pid := server.http.pid) not in seen:
            seen.add(pid)
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    assert len(seen) == http_supervisor.MOST_RESTARTS + 1


def test_no_process_is_left_behind(serve, tmp_path):
    command = [sys.executable, "-m", "robo_cli.main", "robot", "serve", "--driver", "fake", "--port", "0"]
    command += ["--log", str(tmp_path / "audit.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = re.search(r"http://[\d.:]+\d", process.stdout.readline())[0]
            assert RemoteRobot(url).stops == 0
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert len(children) == 2  # HTTP and the audit log
        finally:
            process.kill()
    until(lambda: not any(exists(child) for child in children))
    server = serve()
    child = server.http.pid
    server.close()
    assert not exists(child)


# the loop of the HTTP process, without a process


@pytest.fixture
def fronted(monkeypatch):
    """Gives the port of a front whose times are short, and the other ends of its sockets."""
    monkeypatch.setattr(http_process, "READING", 0.3)
    monkeypatch.setattr(http_process, "WRITING", 0.3)
    monkeypatch.setattr(http_process, "QUEUED", 0.3)
    listener = socket.create_server(("127.0.0.1", 0))
    control, channels = socket.socketpair(), [socket.socketpair() for _ in range(2)]
    served = http_process.HttpProcess(listener, control[1], [other for _, other in channels], "127.0.0.1")
    thread = threading.Thread(target=served.run)
    thread.start()
    yield listener.getsockname()[1], [own for own, _ in channels]
    control[0].close()
    thread.join(20)
    for link in (listener, control[1], *(link for pair in channels for link in pair)):
        link.close()
    assert len(served.connections) == 0


def told(link) -> bytes:
    """Return all that comes until the other side closes the connection."""
    return b"".join(iter(partial(link.recv, 1 << 20), b""))


@pytest.mark.slow
def test_front_closes_what_sends_no_whole_request(fronted):
    port, _ = fronted
    body = HEAD % (b"/robo/stop", 10) + b"{"
    for said, answer in ((b"", b""), (b"GET /robo/he", b""), (body, b"HTTP/1.1 408 Request Timeout")):
        with closing(socket.create_connection(("127.0.0.1", port), 30)) as link:
            link.sendall(said)
            assert told(link).split(b"\r\n")[0] == answer


def test_front_closes_what_drips(fronted):
    port, _ = fronted
    with closing(socket.create_connection(("127.0.0.1", port), 30)) as link, pytest.raises(OSError):
        for _ in range(100):
            link.sendall(b"G")
            time.sleep(0.05)


@pytest.mark.slow
def test_front_closes_what_reads_no_answer(fronted):
    port, channels = fronted
    with closing(socket.create_connection(("127.0.0.1", port), 30)) as link:
        link.sendall(HEALTH)
        receive_request(channels[1])
        send_answer(channels[1], Answer(200, {}, bytes(1 << 25)))
        time.sleep(1.0)
        assert len(told(link)) < 1 << 25


def test_front_says_that_the_robot_is_busy(fronted):
    port, channels = fronted
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), 30))) for _ in range(2))
        first.sendall(HEALTH)
        assert receive_request(channels[1]) == Request("GET", "/robo/health", None)
        second.sendall(HEALTH)
        status, body = answer_of(second)
        assert status == 503 and b"busy" in body
        send_answer(channels[1], Answer(200, {"X-Robo-Reason": "speed"}, b"ok"))
        assert answer_of(first) == (200, b"ok")
        first.sendall(HEALTH)  # the same connection
        receive_request(channels[1])
        send_answer(channels[1], Answer(200, {}, b"again"))
        assert answer_of(first) == (200, b"again")


def test_front_asks_nothing_for_a_client_that_is_gone(fronted):
    port, channels = fronted
    with closing(socket.create_connection(("127.0.0.1", port), 30)) as first:
        first.sendall(HEALTH)
        receive_request(channels[1])
        with closing(socket.create_connection(("127.0.0.1", port), 30)) as second:
            second.sendall(HEAD % (b"/open_gripper", 0))  # it waits for a free channel
            second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(0.1)
        time.sleep(0.1)
        send_answer(channels[1], Answer(200, {}, b"ok"))
        assert answer_of(first) == (200, b"ok")
        first.sendall(HEALTH)
        assert receive_request(channels[1]) == Request("GET", "/robo/health", None)
        send_answer(channels[1], Answer(200, {}, b"ok"))
        assert answer_of(first) == (200, b"ok")


def test_front_passes_on_the_stop_of_a_client_that_is_gone(fronted):
    port, channels = fronted
    with ExitStack() as stack:
        connect = partial(socket.create_connection, ("127.0.0.1", port), 30)
        busy, first = (stack.enter_context(closing(connect())) for _ in range(2))
        busy.sendall(HEALTH)
        receive_request(channels[1])
        first.sendall(stop(b'{"by":"one"}'))
        assert receive_request(channels[0]).body == {"by": "one"}
        with closing(connect()) as second:
            second.sendall(stop(b'{"by":"two"}'))  # it waits for the channel of stops
            second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(0.1)
        time.sleep(0.1)
        send_answer(channels[0], Answer(200, {}, b"ok"))
        assert receive_request(channels[0]).body == {"by": "two"}


def test_front_ends_when_the_arms_process_answers_garbage(fronted):
    port, channels = fronted
    with closing(socket.create_connection(("127.0.0.1", port), 30)) as link:
        link.sendall(HEALTH)
        receive_request(channels[1])
        channels[1].sendall(LENGTH.pack(1 << 31))
        while link.recv(1 << 16):
            pass


def test_messages_have_a_limit():
    one, other = socket.socketpair()
    with one, other:
        one.sendall(LENGTH.pack(1 << 30))
        with pytest.raises(ValueError, match="1073741824 bytes"):
            receive_request(other)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET http://localhost/robo/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /robo/health HTTP/2.0\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /%0d%0a HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /robo/health HTTP/1.1\r\n\r\n", 400),
        (b"GET /robo/health HTTP/1.0\r\n\r\n", 403),
        (b"GET /robo/health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /robo/health HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 403),
        (b"GET /robo/health HTTP/1.1\r\nHost: localhost\nOrigin: x\r\n\r\n", 403),
        (b"GET /robo/health HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n", 403),
        (b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
        (b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET /robo/health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000, 431),
        (b"GET /robo/health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 70 + b"\r\n", 431),
        (stop(b'{"by":[' + b"0," * 2002 + b"0]}"), 413),
        (stop(b'{"by":"' + b"x" * 2001 + b'"}'), 400),
        (stop(b'{"by":"\\ud800"}'), 400),
        (stop(b'{"by":"Ada","by":"Eve"}'), 400),
        (stop(b'{"by":[[[[[[[[1]]]]]]]] }'), 400),
        (b"POST /robo/stop HTTP/1.1\r\nHost: localhost\r\n\r\n", 415),
        (b"OPTIONS /pose HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"OPTIONS /robo/stop HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"PUT /robo/stop HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    ],
)
def test_malformed_requests_are_refused(shared, request_, status):
    with connection(shared) as link:
        link.sendall(request_)
        answer = link.recv(1 << 16)
    assert answer.split()[1] == str(status).encode() and b"\r\nX-Content-Type-Options: nosniff\r\n" in answer
    assert shared.application.robot.guard.stops == 0


@pytest.fixture(scope="module")
def shared():
    from robo_real.drivers.fake import FakeArm
    from robo_real.guarded_arm import GuardedArm
    from robo_real.server.application import Application, RobotServer

    robot = GuardedArm(FakeArm(), TWIN)
    robot.connect()
    server = RobotServer(Application(robot), port=0)
    server.start()
    yield server
    server.close()
