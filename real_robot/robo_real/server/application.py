"""Application of a robot's server: routes and errors. A separate process speaks HTTP (http_process.py).

The server listens on this machine only, unless another address is given. Without a token (token.py) every client that reaches
the port can move the robot. Requests from web pages (with an Origin header) are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from robo_real.cameras import Camera
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.server.franka_routes import Changed, FrankaRoutes, Refused
from robo_real.server.http_supervisor import HttpSupervisor
from robo_real.server.messages import Answer, Request
from robo_real.server.robo_routes import RoboRoutes
from robo_real.server.token import robot_token
from robo_rl.errors import InvalidSetting, RoboRLError, RobotBusy, RobotError, RobotStopped
from robo_rl.system.pages.hosts import listener_at

ADDRESS = "127.0.0.1"
HTML, BYTES = "text/html; charset=utf-8", "application/octet-stream"
CAMERA = "/robo/camera/"
NEEDS_BODY = ("/pose", "/move_gripper", "/update_param", "/set_load")
STATUS: Mapping[type[RoboRLError], int] = {RobotBusy: 409, RobotStopped: 423, RobotError: 503, RoboRLError: 400}
READS = ("/robo/observe", "/robo/judge")
"""POST routes that only read, and are not logged as commands"""
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
"""Fields of a request that are never logged."""
PLAIN = "a client without a lease"


class HttpError(Exception):
    """HTTP error status with the text of its page."""

    def __init__(self, status: int, text: str, methods: Sequence[str] = ()) -> None:
        """Create an error that becomes the answer to a request.

        Args:
            status: HTTP status of the answer.
            text: Message for the client.
            methods: HTTP methods that the address accepts; they go into the header Allow.
        """
        super().__init__(text)
        self.status, self.methods = status, methods


class Application:
    """Application that answers the HTTP requests to one robot. Its requests are already well-formed and bounded in size."""

    def __init__(
        self,
        robot: GuardedArm,
        cameras: Mapping[str, Camera] | None = None,
        *,
        plain_clients: bool = False,
        auto_clear: bool = False,
        allow_joint_reset: bool = False,
    ) -> None:
        """Create the application.

        Args:
            robot: Robot that the requests read and move.
            cameras: Name -> camera; none by default.
            plain_clients: True to let Franka clients, which have no lease, move the robot while the lease is free.
            auto_clear: As for FrankaRoutes.
            allow_joint_reset: As for FrankaRoutes.
        """
        self.robot, self.cameras = robot, cameras or {}
        self.robo_routes = RoboRoutes(robot, cameras or {})
        self.franka_routes = FrankaRoutes(robot, auto_clear=auto_clear, allow_joint_reset=allow_joint_reset)
        self._plain_clients = plain_clients

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request. Errors become answers, so that this raises nothing."""
        try:
            methods = self._methods(request.path)
            if not methods:
                raise HttpError(404, NOT_FOUND)
            if request.method == "OPTIONS":
                return Answer(200, {"Content-Type": HTML, "Allow": ", ".join(methods)}, b"")
            if request.method not in methods:
                raise HttpError(405, NOT_ALLOWED, methods)
            return self._answer_robo(request) if request.path.startswith("/robo/") else self._answer_franka(request)
        except HttpError as error:
            return _html(error)
        except RoboRLError as error:
            return _refusal(error)
        except Exception as error:  # a request must not end the thread that answers the next one
            self.robot.log.add("request_failed", path=request.path, error=f"{type(error).__name__}: {error}"[:300])
            return _html(HttpError(500, FAILED))

    def _methods(self, path: str) -> list[str]:
        """Return the methods that a path accepts, empty for an unknown path."""
        is_read = path in self.robo_routes.reads or path.startswith(CAMERA)
        franka = self.franka_routes
        is_written = any(path in routes for routes in (self.robo_routes.writes, franka.readers, franka.commands))
        found = [method for method, is_taken in (("GET", is_read), ("OPTIONS", True), ("POST", is_written)) if is_taken]
        return found if len(found) > 1 else []

    def _answer_franka(self, request: Request) -> Answer:
        path = request.path
        if path in self.franka_routes.readers:
            return _json(self.franka_routes.readers[path](self.robot.read()))
        body = _required(request.body) if path in NEEDS_BODY else {}
        self._require_free()
        try:
            answer = self.franka_routes.commands[path](body)
            self.robot.log.add_command(path, PLAIN, dict(body), {"answer": answer, "mode": self.robot.guard.mode})
        except OverflowError as error:
            raise HttpError(400, f"A number is out of range: {error}.") from None
        except (Refused, KeyError, ValueError, TypeError, RobotError, AttributeError) as error:
            return _html(HttpError(500, FAILED), {"X-Robo-Reason": printable(str(error).partition("\n")[0])})
        if isinstance(answer, Changed):
            reasons = {"X-Robo-Reason": printable(", ".join(answer.reasons))}
            return Answer(200, {"Content-Type": HTML, **reasons}, answer.text.encode())
        return Answer(200, {"Content-Type": HTML}, answer.encode()) if isinstance(answer, str) else _json(answer)

    def _require_free(self) -> None:
        if not self._plain_clients:
            raise HttpError(403, "This robot moves for clients with a lease only (robot serve --plain-clients).")
        if owner := self.robo_routes.lease.owner:
            raise HttpError(403, f"The robot is held by {owner}.")

    def _answer_robo(self, request: Request) -> Answer:
        path = request.path
        if path.startswith(CAMERA):
            frame = self.robo_routes.frame(path.removeprefix(CAMERA))
            shape = ",".join(map(str, frame.picture.shape))
            headers = {"X-Robo-Stamp": repr(frame.stamp), "X-Robo-Number": str(frame.number), "X-Robo-Shape": shape}
            headers |= {"X-Robo-Identity": printable(frame.identity)}
            return Answer(200, {"Content-Type": BYTES, **headers}, frame.picture.tobytes())
        if request.method == "GET":
            return _json(self.robo_routes.reads[path]())
        body = _required(request.body)
        by = self.robo_routes.lease.owner if "lease" in body else str(body.get("owner", body.get("by", PLAIN)))[:200]
        try:
            answer = self.robo_routes.writes[path](body)
            if path not in READS:
                self._log_command(path, by, body, answer)
            return _json(answer)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidSetting(f"The request to {path} is malformed.", got=f"{type(error).__name__}: {error}") from None

    def _log_command(self, path: str, by: str, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        wanted = {name: value for name, value in body.items() if name not in SECRET}
        done = {name: answer[name] for name in ("executed", "reasons", "mode") if name in answer}
        self.robot.log.add_command(path, by, wanted, done)


class RobotServer:
    """Server of an application. A separate process speaks HTTP, and threads of this process answer the requests."""

    def __init__(self, application: Application, *, address: str = ADDRESS, port: int = 5000) -> None:
        """Open the port; `start` starts to answer.

        Args:
            application: Application that answers the requests.
            address: Address at which the server listens; by default only this machine can reach it.
            port: Port of the server; 0 chooses a free one.

        Raises:
            InvalidSetting: The port is in use, or the token of the environment is too weak.
        """
        self.application = application
        self.asks_token = bool(robot_token())
        """True if clients must show the token of this process's environment"""
        self._listener = listener_at(address, port)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://{address}:{self.port}"
        self.http = HttpSupervisor(self._listener, address, application.answer, self._lost)
        self.notify: Callable[[str], object] = _nothing
        """Called with a message if the HTTP process dies or hangs."""

    def start(self) -> None:
        """Start to answer requests."""
        self.http.start()

    def close(self) -> None:
        """Hold the arm, stop the HTTP process, and close the cameras and the robot."""
        robot = self.application.robot
        robot.pause()
        self.http.close()
        self._listener.close()
        for camera in self.application.cameras.values():
            camera.close()
        robot.close()

    def _lost(self, why: str) -> None:
        """Stop an armed robot because the HTTP process, and with it every client's connection, is lost; why: in words."""
        robot = self.application.robot
        robot.log.add("http_lost", why=why)
        is_armed = robot.guard.mode in (Mode.ARMED, Mode.RUNNING)
        if is_armed:
            robot.stop(f"server: its HTTP process {why}")
        effect = "the arm was stopped" if is_armed else "the arm was not under way"
        self.notify(f"the HTTP process {why}: {effect}")


def _nothing(text: str) -> None: ...


def _required(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the JSON body of a request; raises HttpError 415, with Flask's text, if there is none."""
    if body is None:
        raise HttpError(415, "Did not attempt to load JSON data because the request Content-Type was not 'application/json'.")
    return body


def printable(text: str) -> str:
    """Return a text as a header value: no line breaks, at most 300 characters."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:300]


def _html(error: HttpError, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an error page, byte for byte as Flask writes it."""
    allow = {"Allow": ", ".join(error.methods)} if error.methods else {}
    phrase, text = HTTPStatus(error.status).phrase, str(error).translate(ESCAPES)
    page = f"<!doctype html>\n<html lang=en>\n<title>{error.status} {phrase}</title>\n<h1>{phrase}</h1>\n<p>{text}</p>\n"
    return Answer(error.status, {"Content-Type": HTML, **allow, **(headers or {})}, page.encode())


def _json(content: Mapping[str, Any], status: int = 200) -> Answer:
    """Return JSON, byte for byte as Flask writes it: sorted keys, no spaces, a newline."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return Answer(status, {"Content-Type": "application/json"}, text.encode() + b"\n")


def _refusal(error: RoboRLError) -> Answer:
    status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
    facts = {"error": type(error).__name__, "message": str(error)}
    facts |= {"mode": error.mode, "reason": error.reason} if isinstance(error, RobotStopped) else {}
    return _json(facts, status)
