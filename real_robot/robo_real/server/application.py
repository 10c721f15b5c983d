"""The server: which request goes where, what fails how, and the faults of its link.

Reachable from this machine alone unless another address is named. There are no passwords: whoever reaches the port can move
the robot. Pages in a browser are kept out: a request that says which page it comes from is refused.
"""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    HTTPException,
    InternalServerError,
    LengthRequired,
    MethodNotAllowed,
    NotFound,
    RequestEntityTooLarge,
    UnsupportedMediaType,
)
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from robo_real.cameras import Camera
from robo_real.faults import Faults
from robo_real.guarded import GuardedArm
from robo_real.server.contract import FrankaContract, Refused
from robo_real.server.hosts import is_own_host
from robo_real.server.robo_routes import RoboRoutes
from robo_rl.errors import InvalidSetting, RoboRLError, RobotBusy, RobotError, RobotStopped

ADDRESS = "127.0.0.1"
LARGEST = 1 << 16
"""bytes of a request"""
NEEDS_BODY = ("/pose", "/move_gripper", "/update_param", "/set_load")
STATUS: Mapping[type[RoboRLError], int] = {RobotBusy: 409, RobotStopped: 423, RobotError: 503, RoboRLError: 400}
NO_FAULTS = Faults()


class Application:
    """A WSGI application over one robot."""

    def __init__(
        self,
        robot: GuardedArm,
        cameras: Mapping[str, Camera] | None = None,
        *,
        plain_clients: bool = False,
        auto_clear: bool = False,
    ) -> None:
        """plain_clients: whether clients of the contract, which know no lease, may move the robot while nobody holds one."""
        self.robot, self.cameras = robot, cameras or {}
        self.own = RoboRoutes(robot, cameras or {})
        self.contract = FrankaContract(robot, auto_clear=auto_clear)
        self._plain_clients = plain_clients
        self.address = ADDRESS
        """listened at"""
        self._lost_until = -math.inf
        self._faults_seen = NO_FAULTS

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """Answers one request."""
        request = Request(environ)
        way = self._suffer(request.path) / 2
        self.robot.clock.sleep(way)
        try:
            response = self._answer(request)
        except HTTPException as error:
            response = error.get_response(environ)
        except RoboRLError as error:
            response = _refusal(error)
        self.robot.clock.sleep(way)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if "Origin" in request.headers:
            raise Forbidden("Pages in a browser may not speak with a robot.")
        if not is_own_host(request.headers.get("Host", ""), self.address):
            raise Forbidden("This robot's server has another address: use its number, or this machine's name.")
        if "Transfer-Encoding" in request.headers:
            raise LengthRequired("A request says how long it is: Content-Length.")
        if (request.content_length or 0) > LARGEST:
            raise RequestEntityTooLarge(f"A request has at most {LARGEST} bytes.")
        if request.path.startswith("/robo/"):
            return self._own(request)
        return self._contracted(request)

    def _contracted(self, request: Request) -> Response:
        path = request.path
        if path not in self.contract.readers and path not in self.contract.commands:
            raise NotFound
        if request.method != "POST":
            raise MethodNotAllowed(["OPTIONS", "POST"])
        if path in self.contract.readers:
            return _json(self.contract.readers[path](self.robot.driver.read()))
        body = _body(request) if path in NEEDS_BODY else {}
        self._require_free()
        try:
            answer = self.contract.commands[path](body)
        except OverflowError as error:
            raise BadRequest(f"A number is out of range: {error}.") from None
        except (Refused, KeyError, ValueError, TypeError, RobotError, AttributeError) as error:
            response = InternalServerError().get_response()
            response.headers["X-Robo-Reason"] = printable(str(error).partition("\n")[0])
            return Response(response.get_data(), 500, response.headers)
        return Response(answer, mimetype="text/html") if isinstance(answer, str) else _json(answer)

    def _require_free(self) -> None:
        if not self._plain_clients:
            raise Forbidden("This robot moves for clients with a lease only (robot serve --plain-clients).")
        if owner := self.own.lease.owner:
            raise Forbidden(f"The robot is held by {owner}.")

    def _own(self, request: Request) -> Response:
        path = request.path
        if path.startswith("/robo/camera/"):
            frame = self.own.frame(path.removeprefix("/robo/camera/"))
            shape = ",".join(map(str, frame.picture.shape))
            headers = {"X-Robo-Stamp": repr(frame.stamp), "X-Robo-Number": str(frame.number), "X-Robo-Shape": shape}
            return Response(frame.picture.tobytes(), headers=headers, mimetype="application/octet-stream")
        if request.method == "GET" and path in self.own.reads:
            return _json(self.own.reads[path]())
        if path not in self.own.writes and path not in self.own.reads:
            raise NotFound
        if request.method != "POST" or path not in self.own.writes:
            raise MethodNotAllowed(["GET"] if path in self.own.reads else ["POST"])
        try:
            return _json(self.own.writes[path](_body(request)))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidSetting(f"The request to {path} is malformed.", got=f"{type(error).__name__}: {error}") from None

    def _suffer(self, path: str) -> float:
        """Breaks the connection, or returns how long [s] it takes both ways; the faults of a twin can always be changed."""
        faults: Faults = getattr(self.robot.driver, "faults", NO_FAULTS)
        if faults is NO_FAULTS or path == "/robo/faults":
            return 0.0
        if faults is not self._faults_seen:
            self._faults_seen, self._lost_until = faults, self.robot.clock.now() + faults.disconnect
        if self.robot.clock.now() < self._lost_until or faults.drops():
            raise ConnectionResetError  # closes the connection without an answer
        return faults.wait()


class _Handler(WSGIRequestHandler):
    """Keeps connections, sends small answers at once, and writes no line per request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log(self, type: str, message: str, *args: Any) -> None:
        pass

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        self.close_connection = True  # or the other side would wait for the answer that never comes


class RobotServer:
    """Serves an application in a thread of its own."""

    def __init__(self, application: Application, *, address: str = ADDRESS, port: int = 5000) -> None:
        """port: 0 takes a free one. Raises InvalidSetting where the port cannot be had."""
        self.application = application
        application.address = address
        try:
            self._server: BaseWSGIServer = _listening(application, address, port)
        except OSError as error:
            raise InvalidSetting(
                f"Port {port} of {address} cannot be used.", got=error, allowed="a free port", fix="--port 0 takes any"
            ) from None
        self.port = self._server.server_port
        self.url = f"http://{address}:{self.port}"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serves from now on."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leaves the robot still, then serves no more and closes robot and cameras."""
        robot = self.application.robot
        robot.pause()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        for camera in self.application.cameras.values():
            camera.close()
        robot.close()


def _listening(application: Application, address: str, port: int) -> BaseWSGIServer:
    with socket.socket() as probe:  # werkzeug ends the process where a port is taken; this raises
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        port = probe.getsockname()[1]
    return make_server(address, port, application, threaded=True, request_handler=_Handler)


def _body(request: Request) -> dict[str, Any]:
    """Returns the request's JSON object; another type of content is refused, as Flask refuses it."""
    if not request.is_json:
        raise UnsupportedMediaType(
            "Did not attempt to load JSON data because the request Content-Type was not 'application/json'."
        )
    try:
        found = request.get_json()
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None
    if not isinstance(found, dict):
        raise BadRequest("The body is no JSON object.")
    return found


def printable(text: str) -> str:
    """Return a text that fits into a header: a client's line break must not end it."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:300]


def _json(content: Mapping[str, Any]) -> Response:
    """Returns JSON to the byte as Flask writes it: sorted keys, no spaces, a newline."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return Response(text + "\n", mimetype="application/json")


def _refusal(error: RoboRLError) -> Response:
    status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
    facts = {"error": type(error).__name__, "message": str(error)}
    facts |= {"mode": error.mode, "reason": error.reason} if isinstance(error, RobotStopped) else {}
    response = _json(facts)
    response.status_code = status
    return response
