"""The client of a served robot, where the server is slow: what nothing moves for may take its time, a motion may not."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from robo_real.link import Link
from robo_real.remote import RemoteRobot
from robo_rl.errors import RobotUnavailable

LATE = 0.6
"""[s] of each answer; more than a motion waits for"""


class Slow(BaseHTTPRequestHandler):
    answers: dict[str, dict]

    def do_POST(self) -> None:
        time.sleep(LATE)
        answer = json.dumps(self.answers.get(self.path, {"mode": "armed", "reason": ""})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def robot(serve):
    """Gives the client of a server whose every answer is late, made as if no test were patient."""
    found = RemoteRobot(serve().url)
    told = {"stamp": 1.0, "success": False, "mode": "armed", "reason": "", "observation": {}}
    Slow.answers = {
        "/robo/version": found.link.json("/robo/version", method="GET"),
        "/robo/spec": found.spec.to_json(),
        "/robo/lease": {"lease": "mine"},
        "/robo/observe": told,
        "/robo/apply": {"executed": [0.0] * found.spec.action.size, "reasons": []},
    }
    found.close()
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        slow = RemoteRobot(f"http://127.0.0.1:{server.server_port}", timeout=0.5)
        yield slow
        slow.close()
        server.shutdown()


def test_a_slow_server_is_borne_until_something_moves_and_once_it_is_still(robot):
    robot.connect()
    robot.reset(seed=0)
    robot.arm()
    robot.observe()
    with pytest.raises(RobotUnavailable, match=r"robo/apply gives no answer(.|\n)*within 0.5 s"):
        robot.apply(np.zeros(robot.spec.action.size, np.float32))
    with pytest.raises(RobotUnavailable, match=r"robo/observe gives no answer(.|\n)*within 0.5 s"):
        robot.observe()
    robot.stop()  # waits for nobody, tells of nothing
    with pytest.raises(RobotUnavailable, match=r"robo/pause gives no answer(.|\n)*within 0.5 s"):
        robot.pause()
    robot.pause()
    robot.observe()


def test_a_server_that_never_answers_is_given_up():
    silent = ThreadingHTTPServer(("127.0.0.1", 0), Slow)  # which accepts, and serves nobody
    with silent, pytest.raises(RobotUnavailable, match=r"within 0\.2 s"):
        Link(f"http://127.0.0.1:{silent.server_port}", 0.2).json("/robo/version", method="GET")
