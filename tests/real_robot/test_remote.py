"""The client of a served robot, where the server is slow."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from robo_real.link import Link
from robo_real.remote import RemoteRobot


class Slow(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        time.sleep(1.0)  # twice what a command may take
        answer = json.dumps({"lease": "mine"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def test_taking_a_robot_bears_a_server_that_is_slow_at_first(serve):
    robot = RemoteRobot(serve().url)
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        robot.link = Link(f"http://127.0.0.1:{server.server_port}", None)
        robot.connect()
        server.shutdown()
    assert robot._lease == "mine"
