"""The server: routes, errors, and the faults of its link. HTTP itself is spoken by a process of its own (front.py).

Reachable from this machine alone unless another address is named. There are no passwords: whoever reaches the port can move
the robot. Pages in a browser are kept out: a request that says which page it comes from is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

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
from robo_rl.system.pages.hosts import listener_at

ADDRESS = "127.0.0.1"
HTML, BYTES = "text/html; charset=utf-8", "application/octet-stream"
CAMERA = "/robo/camera/"
NEEDS_BODY = ("/pose", "/move_gripper", "/update_param", "/set_load")
STATUS: Mapping[type[RoboRLError], int] = {RobotBusy: 409, RobotStopped: 423, RobotError: 503, RoboRLError: 400}
NO_FAULTS = Faults()
READS = ("/robo/observe",)
"""POST routes that command nothing."""
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})
NOT_FOUND = (
    "The requested URL was not found on the server. If you entered the URL manually please check your spelling and try again."
)
NOT_ALLOWED = "The method is not allowed for the requested URL."
FAILED = (
    "The server encountered an internal error and was unable to complete your request. Either the server is overloaded or there"
    " is an error in the application."
)
SECRET = ("lease", "key")
"""of a request: stand in no log"""
PLAIN = "a client without a lease"


class HttpError(Exception):
    """A request that is answered with a page of an error."""

    def __init__(self, status: int, text: str, methods: Sequence[str] = ()) -> None:
        """methods: that the address takes."""
        super().__init__(text)
        self.status, self.methods = status, methods


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
            methods = self._methods(request.path)
            if not methods:
                raise HttpError(404, NOT_FOUND)
            if request.method == "OPTIONS":
                return response(200, b"", {"Content-Type": HTML, "Allow": ", ".join(methods)})
            if request.method not in methods:
                raise HttpError(405, NOT_ALLOWED, methods)
            return self._own(request) if request.path.startswith("/robo/") else self._contracted(request)
        except HttpError as error:
            return _html(error)
        except RoboRLError as error:
            return _refusal(error)
        except Exception as error:  # a request must not end the thread that answers the next one
            self.robot.log.add("request_failed", path=request.path, error=f"{type(error).__name__}: {error}"[:300])
            return _html(HttpError(500, FAILED))

    def _methods(self, path: str) -> list[str]:
        """Return what a path takes, nothing if there is no such path."""
        is_read = path in self.own.reads or path.startswith(CAMERA)
        is_written = any(path in routes for routes in (self.own.writes, self.contract.readers, self.contract.commands))
        found = [method for method, is_taken in (("GET", is_read), ("OPTIONS", True), ("POST", is_written)) if is_taken]
        return found if len(found) > 1 else []

    def _contracted(self, request: Request) -> bytes:
        path = request.path
        if path in self.contract.readers:
            return _json(self.contract.readers[path](self.robot.driver.read()))
        body = _required(request.body) if path in NEEDS_BODY else {}
        self._require_free()
        try:
            answer = self.contract.commands[path](body)
            self.robot.log.add_command(path, PLAIN, dict(body), {"answer": answer, "mode": self.robot.guard.mode})
        except OverflowError as error:
            raise HttpError(400, f"A number is out of range: {error}.") from None
        except (Refused, KeyError, ValueError, TypeError, RobotError, AttributeError) as error:
            return _html(HttpError(500, FAILED), {"X-Robo-Reason": printable(str(error).partition("\n")[0])})
        if isinstance(answer, Changed):
            reasons = {"X-Robo-Reason": printable(", ".join(answer.reasons))}
            return response(200, answer.text.encode(), {"Content-Type": HTML, **reasons})
        return response(200, answer.encode(), {"Content-Type": HTML}) if isinstance(answer, str) else _json(answer)

    def _require_free(self) -> None:
        if not self._plain_clients:
            raise HttpError(403, "This robot moves for clients with a lease only (robot serve --plain-clients).")
        if owner := self.own.lease.owner:
            raise HttpError(403, f"The robot is held by {owner}.")

    def _own(self, request: Request) -> bytes:
        path = request.path
        if path.startswith(CAMERA):
            frame = self.own.frame(path.removeprefix(CAMERA))
            shape = ",".join(map(str, frame.picture.shape))
            headers = {"X-Robo-Stamp": repr(frame.stamp), "X-Robo-Number": str(frame.number), "X-Robo-Shape": shape}
            return response(200, frame.picture.tobytes(), {"Content-Type": BYTES, **headers})
        if request.method == "GET":
            return _json(self.own.reads[path]())
        body = _required(request.body)
        by = self.own.lease.owner if "lease" in body else str(body.get("owner", body.get("by", PLAIN)))[:200]
        try:
            answer = self.own.writes[path](body)
            if path not in READS:
                self._log_command(path, by, body, answer)
            return _json(answer)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidSetting(f"The request to {path} is malformed.", got=f"{type(error).__name__}: {error}") from None

    def _log_command(self, path: str, by: str, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        asked = {name: value for name, value in body.items() if name not in SECRET}
        done = {name: answer[name] for name in ("executed", "reasons", "mode") if name in answer}
        self.robot.log.add_command(path, by, asked, done)

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
        self._listener = listener_at(address, port)
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
        raise HttpError(415, "Did not attempt to load JSON data because the request Content-Type was not 'application/json'.")
    return body


def printable(text: str) -> str:
    """Return a text that fits into a header: a client's line break must not end it."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:300]


def _html(error: HttpError, headers: Mapping[str, str] | None = None) -> bytes:
    """Return an error to the byte as Flask writes it."""
    allow = {"Allow": ", ".join(error.methods)} if error.methods else {}
    phrase, text = HTTPStatus(error.status).phrase, str(error).translate(ESCAPES)
    page = f"<!doctype html>\n<html lang=en>\n<title>{error.status} {phrase}</title>\n<h1>{phrase}</h1>\n<p>{text}</p>\n"
    return response(error.status, page.encode(), {"Content-Type": HTML, **allow, **(headers or {})})


def _json(content: Mapping[str, Any], status: int = 200) -> bytes:
    """Return JSON to the byte as Flask writes it: sorted keys, no spaces, a newline."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return response(status, text.encode() + b"\n", {"Content-Type": "application/json"})


def _refusal(error: RoboRLError) -> bytes:
    status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
    facts = {"error": type(error).__name__, "message": str(error)}
    facts |= {"mode": error.mode, "reason": error.reason} if isinstance(error, RobotStopped) else {}
    return _json(facts, status)
