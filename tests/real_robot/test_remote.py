"""The client of a served robot, where the server is slow: what nothing moves for may take its time, a motion may not."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from factories import rest_slow
from robo_real.http_client import RobotClient
from robo_real.remote_robot import RemoteRobot
from robo_rl.errors import RobotStopped, RobotUnavailable

LATE = 0.25
"""[s] of each answer; more than a motion waits for"""
LIMIT = 0.1
"""[s] that a motion waits"""


class Slow(BaseHTTPRequestHandler):
    answers: dict[str, dict]
    answers_all = threading.Event()
    """Whether what moves is answered, too."""
    moving = ("/robo/apply",)

    def do_POST(self) -> None:
        time.sleep(LATE)
        if self.path in self.moving:
            self.answers_all.wait(60)
        answer = json.dumps(self.answers.get(self.path, {"mode": "armed", "reason": ""})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked is gone
            self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def robot(serve, monkeypatch):
    """Gives the client of a server whose every answer is late, and which answers no motion."""
    found = RemoteRobot(serve().url)
    told = {"stamp": 1.0, "success": False, "mode": "armed", "reason": "", "observation": {}}
    Slow.answers = {
        "/robo/version": found.client.json("/robo/version", method="GET"),
        "/robo/spec": found.spec.to_json(),
        "/robo/lease": {"lease": "mine"},
        "/robo/observe": told,
    }
    found.close()
    monkeypatch.setattr("robo_real.http_client.TIMEOUT", 60.0)
    Slow.answers_all.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        slow = RemoteRobot(f"http://127.0.0.1:{server.server_port}", timeout=LIMIT)
        yield slow
        Slow.answers_all.set()
        slow.close()
        server.shutdown()


def begun(robot: RemoteRobot) -> RemoteRobot:
    """Returns it under way: a command was sent, and its answer is late."""
    robot.connect()
    robot.reset(seed=0)
    robot.arm()
    robot.observe()
    with pytest.raises(RobotUnavailable, match=r"robo/apply gives no answer(.|\n)*within 0\.1 s"):
        robot.apply(np.zeros(robot.spec.action.size, np.float32))
    return robot


@pytest.mark.parametrize("call", rest_slow(["observe", "enable", "pause"]))
def test_a_slow_server_is_borne_until_something_moves(robot, call, monkeypatch):
    begun(robot)
    monkeypatch.setattr(Slow, "moving", (f"/robo/{call}",))
    with pytest.raises(RobotUnavailable, match=rf"robo/{call} gives no answer(.|\n)*within 0\.1 s"):
        getattr(robot, call)()


@pytest.mark.slow
def test_a_slow_server_is_borne_again_once_a_stop_has_arrived(robot, monkeypatch):
    begun(robot)
    monkeypatch.setattr(Slow, "moving", ("/robo/stop",))
    robot.stop()  # which does not arrive, as far as is known: it waits for nobody, tells of nothing
    monkeypatch.setattr(Slow, "moving", ())
    assert robot._moves
    monkeypatch.setattr(robot, "_timeout", 60.0)
    robot.stop()
    monkeypatch.setattr(robot, "_timeout", 0.001)
    robot.pause()
    robot.observe()


def test_a_robot_that_was_told_to_hold_may_take_its_time(robot, monkeypatch):
    begun(robot)
    monkeypatch.setattr(Slow, "moving", ("/robo/pause",))
    with pytest.raises(RobotUnavailable, match="robo/pause"):
        robot.pause()
    monkeypatch.setattr(Slow, "moving", ())
    robot.pause()


def test_a_server_that_never_answers_is_given_up():
    silent = ThreadingHTTPServer(("127.0.0.1", 0), Slow)  # which accepts, and serves nobody
    with silent, pytest.raises(RobotUnavailable, match=r"within 0\.2 s"):
        RobotClient(f"http://127.0.0.1:{silent.server_port}", 0.2).json("/robo/version", method="GET")


class Hostile(BaseHTTPRequestHandler):
    first, again, body, status = b"", b"", b"", 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))  # what is not read turns the end of a connection into a reset
        with contextlib.suppress(OSError):  # the client leaves
            if self.again:
                self.wfile.write(self.first)
                for _ in range(200):
                    self.wfile.write(self.again)
                    time.sleep(0.05)
            self.send_response(self.status)
            self.send_header("Content-Length", str(len(self.body)))
            self.end_headers()
            self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hostile():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        link = RobotClient(f"http://127.0.0.1:{server.server_port}")
        yield link
        link.close()
        server.shutdown()


DRIPS = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunk extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
}


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.real_time
def test_link_timeout_holds_against_drips(hostile, monkeypatch, drip):
    monkeypatch.setattr(Hostile, "first", DRIPS[drip][0])
    monkeypatch.setattr(Hostile, "again", DRIPS[drip][1])
    started = time.monotonic()
    with pytest.raises(RobotUnavailable, match="gives no answer"):
        hostile.post("/robo/apply", {}, timeout=0.4)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_link_takes_nonsense_for_no_answer(hostile, monkeypatch):
    monkeypatch.setattr(Hostile, "body", b"[" * 200_000)
    with pytest.raises(RobotUnavailable, match="no JSON object"):
        hostile.json("/robo/apply")
    monkeypatch.setattr(Hostile, "status", 500)
    with pytest.raises(RobotUnavailable, match="refuses: status 500"):
        hostile.json("/robo/apply")


@pytest.mark.slow
def test_link_takes_no_larger_answer_than_a_picture(hostile, monkeypatch):
    monkeypatch.setattr("robo_real.http_client.LARGEST_ANSWER", 1000)
    monkeypatch.setattr(Hostile, "body", b"x" * 1000)
    assert len(hostile.post("/robo/apply", {})) == 1000
    monkeypatch.setattr(Hostile, "body", b"x" * 1001)
    with pytest.raises(RobotUnavailable, match="more than 1000 bytes"):
        hostile.post("/robo/apply", {})


@pytest.mark.slow
def test_link_errors_hold_nothing_a_terminal_obeys(hostile, monkeypatch):
    monkeypatch.setattr(Hostile, "status", 423)
    monkeypatch.setattr(Hostile, "body", json.dumps({"mode": "held", "reason": "\x1b]0;x\x07\n  do: rm"}).encode())
    with pytest.raises(RobotStopped) as error:
        hostile.json("/robo/apply")
    assert all(line.isprintable() for line in str(error.value).splitlines()) and "\n  do: rm" not in str(error.value)
