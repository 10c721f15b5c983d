"""The robot's HTTP server against malformed, oversized and foreign requests."""

import json
import socket
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from robo_real.http_client import RobotClient
from robo_rl.errors import RobotBusy


def raw(server, request: bytes, *, timeout=30.0) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the answer to the bytes of a request; status 0 if there is none."""
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout)) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head:
        return 0, {}, b""
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def request(path, body=b"", *headers, method="POST", host="127.0.0.1:5000"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close", *headers]
    lines += [f"Content-Length: {len(body)}"] if body and not any("encoding" in line.lower() for line in headers) else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
def server(serve_in_step):
    return serve_in_step(cameras=("front",), image_size=32)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"])
@pytest.mark.parametrize("path", ["/robo/health", "/robo/log", "/robo/camera/camera_front"])
def test_server_refuses_foreign_host_names(server, host, path):
    status, _, body = raw(server, request(path, method="GET", host=host))
    assert status == 403 and b"another address" in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:81"])
def test_server_answers_its_own_names(server, host):
    assert raw(server, request("/robo/health", method="GET", host=host))[0] == 200


def test_server_refuses_chunked_and_large_bodies(server):
    chunk = b"5\r\n[0,0,\r\n"
    assert raw(server, request("/robo/stop", chunk * 10, "Transfer-Encoding: chunked"))[0] == 411
    assert raw(server, request("/robo/stop", b" " * 70_000))[0] == 413
    assert server.application.robot.guard.mode == "idle"


BODIES = [
    (b'{"lease": "L", "action": [0, 0, 0, 0, 1], "answers": 1' + b"0" * 400 + b"}", "/robo/apply"),
    (b'{"lease": "L", "seed": -1}', "/robo/scene/reset"),
    (b'{"lease": "L", "seed": 1e999}', "/robo/scene/reset"),
    (b'{"lease": "L", "seed": 1.5}', "/robo/scene/reset"),
    (b'{"by": ' + b"[" * 5000 + b"]" * 5000 + b"}", "/robo/stop"),
    (b'{"gripper_pos": 1e999}', "/move_gripper"),
    (b'{"gripper_pos": "1\\r2"}', "/move_gripper"),
    (b'{"gripper_pos": ' + b"9" * 5000 + b"}", "/move_gripper"),
    (b"[1]", "/robo/stop"),
    (b"null", "/robo/stop"),
    (b'{"by": "\xff"}', "/robo/stop"),
    (b"{", "/robo/stop"),
]


@pytest.mark.parametrize(("body", "path"), BODIES, ids=[f"{path} {body[:30]!r}" for body, path in BODIES])
def test_server_answers_400_to_malformed_bodies(server, body, path):
    robot = server.application.robot
    if path.startswith("/robo"):
        lease = json.loads(raw(server, request("/robo/lease", b'{"owner": "lab"}'))[2])["lease"]
        body = body.replace(b'"L"', json.dumps(lease).encode())
        raw(server, request("/robo/arm", json.dumps({"lease": lease}).encode()))
    before = robot.driver.read().position
    assert raw(server, request(path, body))[0] == 400
    assert robot.guard.mode in ("idle", "armed") and robot.guard.target is None
    assert (robot.driver.read().position == before).all()


def test_server_clears_no_error_of_a_leased_robot_for_others(server):
    robot = server.application.robot
    recovered = []
    robot.driver.recover = lambda: recovered.append(1)
    assert raw(server, request("/clearerr"))[0] == 200 and not recovered  # nor without --auto-clear
    token = json.loads(raw(server, request("/robo/lease", b'{"owner": "lab"}'))[2])["lease"]
    status, _, body = raw(server, request("/clearerr"))
    assert status == 403 and b"held by lab" in body and not recovered
    server.application.robo_routes.lease.release(token)
    assert raw(server, request("/clearerr"))[0] == 200


def test_lease_error_over_http_is_409(server):
    raw(server, request("/robo/lease", b'{"owner": "lab"}'))
    status, _, body = raw(server, request("/robo/lease", b'{"owner": "lab"}'))
    assert status == 409 and json.loads(body)["error"] == RobotBusy.__name__


def test_state_is_what_people_look_at(serve):
    server = serve()
    link = RobotClient(server.url)
    state = link.json("/robo/state", method="GET")
    assert set(state) == {"stamp", "position", "quaternion", "force", "torque", "opening"}
    assert len(state["position"]) == len(state["force"]) == 3 and 0.0 <= state["opening"] <= 0.09
    robot = server.application.robot
    lost = replace(robot.driver.read(), force=np.array([np.nan, np.inf, 1.0]))
    robot.driver.read = lambda: lost
    assert link.json("/robo/state", method="GET")["force"] == [None, None, 1.0]
    del robot.driver.read
    link.close()
