"""The server: routes, errors, and the faults of its link. HTTP itself is spoken by a process of its own (front.py).

Reachable from this machine alone unless another address is named. There are no passwords: whoever reaches the port can move
the robot. Pages in a browser are kept out: a request that says which page it comes from is refused.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Mapping
from typing import Any

from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    HTTPException,
    InternalServerError,
    MethodNotAllowed,
    NotFound,
    UnsupportedMediaType,
)

from robo_real.cameras import Camera
from robo_real.faults import Faults
from robo_real.guard import Mode
from robo_real.guarded import GuardedArm
from robo_real.server.contract import Changed, FrankaContract, Refused
from robo_real.server.http_syntax import response
from robo_real.server.messages import Request
from robo_real.server.robo_routes import RoboRoutes
from robo_real.server.supervision import HttpProcess
from robo_rl.errors import InvalidSetting, RoboRLError, RobotBusy, RobotError, RobotStopped

ADDRESS = "127.0.0.1"
BACKLOG = 128
"""connections that wait to be accepted"""
HTML, BYTES = "text/html; charset=utf-8", "application/octet-stream"
NEEDS_BODY = ("/pose", "/move_gripper", "/update_param", "/set_load")
STATUS: Mapping[type[RoboRLError], int] = {RobotBusy: 409, RobotStopped: 423, RobotError: 503, RoboRLError: 400}
NO_FAULTS = Faults()


class Application:
    """Answers requests to one robot; they are well-formed and of bounded size."""

    def __init__(
        self,
        robot: GuardedArm,
        cameras: Mapping[str, Camera] | None = None,
        *,
        plain_clients: bool = False,
        auto_clear: bool = False,
        allow_joint_reset: bool = False,
    ) -> None:
        """plain_clients: whether clients of the contract, which know no lease, may move the robot while nobody holds one."""
        self.robot, self.cameras = robot, cameras or {}
        self.own = RoboRoutes(robot, cameras or {})
        self.contract = FrankaContract(robot, auto_clear=auto_clear, allow_joint_reset=allow_joint_reset)
        self._plain_clients = plain_clients
        self._lost_until = -math.inf
        self._faults_seen = NO_FAULTS

    def answer(self, request: Request) -> bytes:
        """Return the answer to a request as it is sent; empty if the connection is to break. Raises nothing."""
        try:
            way = self._suffer(request.path) / 2
            self.robot.clock.sleep(way)
            answer = self._answer(request)
            self.robot.clock.sleep(way)
        except ConnectionResetError:
            return b""
        return answer

    def _answer(self, request: Request) -> bytes:
        try:
            return self._own(request) if request.path.startswith("/robo/") else self._contracted(request)
        except HTTPException as error:
            return _html(error)
        except RoboRLError as error:
            return _refusal(error)
        except Exception as error:  # a request must not end the thread that answers the next one
            self.robot.log.add("request_failed", path=request.path, error=f"{type(error).__name__}: {error}"[:300])
            return _html(InternalServerError())

    def _contracted(self, request: Request) -> bytes:
        path = request.path
        if path not in self.contract.readers and path not in self.contract.commands:
            raise NotFound
        if request.method == "OPTIONS":
            return _options(["OPTIONS", "POST"])
        if request.method != "POST":
            raise MethodNotAllowed(["OPTIONS", "POST"])
        if path in self.contract.readers:
            return _json(self.contract.readers[path](self.robot.driver.read()))
        body = _required(request.body) if path in NEEDS_BODY else {}
        self._require_free()
        try:
            answer = self.contract.commands[path](body)
        except OverflowError as error:
            raise BadRequest(f"A number is out of range: {error}.") from None
        except (Refused, KeyError, ValueError, TypeError, RobotError, AttributeError) as error:
            return _html(InternalServerError(), {"X-Robo-Reason": printable(str(error).partition("\n")[0])})
        if isinstance(answer, Changed):
            reasons = {"X-Robo-Reason": printable(", ".join(answer.reasons))}
            return response(200, answer.text.encode(), {"Content-Type": HTML, **reasons})
        return response(200, answer.encode(), {"Content-Type": HTML}) if isinstance(answer, str) else _json(answer)

    def _require_free(self) -> None:
        if not self._plain_clients:
            raise Forbidden("This robot moves for clients with a lease only (robot serve --plain-clients).")
        if owner := self.own.lease.owner:
            raise Forbidden(f"The robot is held by {owner}.")

    def _own(self, request: Request) -> bytes:
        path = request.path
        if path.startswith("/robo/camera/"):
            frame = self.own.frame(path.removeprefix("/robo/camera/"))
            shape = ",".join(map(str, frame.picture.shape))
            headers = {"X-Robo-Stamp": repr(frame.stamp), "X-Robo-Number": str(frame.number), "X-Robo-Shape": shape}
            return response(200, frame.picture.tobytes(), {"Content-Type": BYTES, **headers})
        if request.method == "GET" and path in self.own.reads:
            return _json(self.own.reads[path]())
        allowed = [method for method, paths in (("GET", self.own.reads), ("POST", self.own.writes)) if path in paths]
        if not allowed:
            raise NotFound
        if request.method == "OPTIONS":
            return _options([*allowed, "OPTIONS"])
        if request.method not in allowed:
            raise MethodNotAllowed([*allowed, "OPTIONS"])
        try:
            return _json(self.own.writes[path](_required(request.body)))
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


class RobotServer:
    """Serves an application: HTTP in a process of its own, its requests in a few threads of this one."""

    def __init__(self, application: Application, *, address: str = ADDRESS, port: int = 5000) -> None:
        """port: 0 takes a free one. Raises InvalidSetting if the port cannot be had."""
        self.application = application
        self._listener = socket.socket()
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((address, port))
            self._listener.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            self._listener.close()
            raise InvalidSetting(
                f"Port {port} of {address} cannot be used.", got=error, allowed="a free port", fix="--port 0 takes any"
            ) from None
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://{address}:{self.port}"
        self.http = HttpProcess(self._listener, address, application.answer, self._lost)
        self.notify: Callable[[str], object] = _nothing
        """Called with a sentence if the HTTP process dies or is stuck."""

    def start(self) -> None:
        """Serve from now on."""
        self.http.start()

    def close(self) -> None:
        """Leave the robot still, then serve no more and close robot and cameras."""
        robot = self.application.robot
        robot.pause()
        self.http.close()
        self._listener.close()
        for camera in self.application.cameras.values():
            camera.close()
        robot.close()

    def _lost(self, why: str) -> None:
        """The HTTP process died or is stuck, and with it every client's connection."""
        robot = self.application.robot
        robot.log.add("http_lost", why=why)
        is_under_way = robot.guard.mode in (Mode.ARMED, Mode.RUNNING)
        if is_under_way:
            robot.stop(f"server: its HTTP process {why}")
        does = "the arm was stopped" if is_under_way else "the arm was not under way"
        self.notify(f"the HTTP process {why}: {does}")


def _nothing(text: str) -> None: ...


def _required(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the body of a request; one without JSON is refused as Flask refuses it."""
    if body is None:
        raise UnsupportedMediaType(
            "Did not attempt to load JSON data because the request Content-Type was not 'application/json'."
        )
    return body


def printable(text: str) -> str:
    """Return a text that fits into a header: a client's line break must not end it."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:300]


def _options(allowed: list[str]) -> bytes:
    return response(200, b"", {"Content-Type": HTML, "Allow": ", ".join(allowed)})


def _html(error: HTTPException, headers: Mapping[str, str] | None = None) -> bytes:
    """Return an error to the byte as Flask writes it."""
    allowed = getattr(error, "valid_methods", None)
    allow = {"Allow": ", ".join(allowed)} if allowed else {}
    return response(error.code or 500, error.get_body().encode(), {"Content-Type": HTML, **allow, **(headers or {})})


def _json(content: Mapping[str, Any], status: int = 200) -> bytes:
    """Return JSON to the byte as Flask writes it: sorted keys, no spaces, a newline."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return response(status, text.encode() + b"\n", {"Content-Type": "application/json"})


def _refusal(error: RoboRLError) -> bytes:
    status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
    facts = {"error": type(error).__name__, "message": str(error)}
    facts |= {"mode": error.mode, "reason": error.reason} if isinstance(error, RobotStopped) else {}
    return _json(facts, status)
