"""HTTP client of a robot's server. Every call has a timeout. No call is retried, since a motion may have started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from robo_real.cameras import FAULTS, Frame
from robo_real.server.messages import LARGEST_ANSWER
from robo_real.server.token import HEADER, robot_token
from robo_rl.errors import InvalidSetting, RobotBusy, RobotError, RobotStopped, RobotUnavailable, printable, printable_lines
from robo_rl.system.timed_http import NoResponse, Response, ResponseTooLarge, TimedClient

TIMEOUT = 5.0
"""[s] longest time of a call while the arm stands, since a server may be busy or starting"""
_REFUSALS = {409: RobotBusy}


class RobotClient:
    """HTTP client of one robot's server, with a persistent connection."""

    def __init__(self, url: str, timeout: float | None = None, *, token: str | None = None) -> None:
        """Create a client; the first call opens the connection.

        Args:
            url: Address of the server, such as http://127.0.0.1:5000.
            timeout: [s] Longest time of a call that sets no time of its own; None for TIMEOUT.
            token: Token of the server; None for that of the environment variable ROBO_RL_ROBOT_TOKEN, "" for no token.

        Raises:
            InvalidSetting: This is no address of a robot, or the token of the environment is too weak.
        """
        self.url, self._timeout = _address(url), TIMEOUT if timeout is None else timeout
        self._token = robot_token() if token is None else token
        self._client = TimedClient()

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float | None = None) -> bytes:
        """Send a POST with a JSON body, and return the content of the answer.

        Raises:
            RobotUnavailable: The server gives no answer within `timeout` [s], or fails.
            RobotBusy: Another process holds the robot.
            RobotStopped: A person must re-arm the robot first.
            RobotError: The server refuses the request for another reason.
        """
        return self._request("POST", path, body, timeout).content

    def json(
        self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST", timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a request, and return the JSON object of the answer.

        Raises the errors of `post`, and RobotUnavailable if the answer is no JSON object.
        """
        found = _object(self._request(method, path, {} if body is None and method == "POST" else body, timeout).content)
        if found is None:
            raise RobotUnavailable(f"{self.url}{path} answers no JSON object.", fix="is it a robot's server?")
        return found

    def frame(self, camera: str, *, timeout: float | None = None) -> Frame:
        """Request the newest picture of a camera, in read-only memory; raises RobotUnavailable, or the fault of the camera."""
        answer = self._request("GET", f"/robo/camera/{camera}", None, timeout)
        headers = answer.headers
        try:
            shape = tuple(int(side) for side in headers["x-robo-shape"].split(","))
            picture = np.frombuffer(answer.content, np.uint8).reshape(shape)
            identity = headers.get("x-robo-identity", "")
            return Frame(picture, float(headers["x-robo-stamp"]), int(headers["x-robo-number"]), identity)
        except (KeyError, ValueError) as error:
            raise RobotUnavailable(f"The camera {camera!r} sends no picture.", got=error) from None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None) -> Response:
        content = None if body is None else json.dumps(body).encode()
        headers = {HEADER: self._token} if self._token else {}
        if content is not None:
            headers["Content-Type"] = "application/json"
        limit = self._timeout if timeout is None else timeout
        try:
            answer = self._client.request(
                method, self.url + path, headers=headers, content=content, timeout=limit, largest=LARGEST_ANSWER
            )
        except (NoResponse, ResponseTooLarge) as error:
            raise RobotUnavailable(
                f"{self.url}{path} gives no answer.",
                got=printable(str(error)),
                allowed=f"within {limit} s",
                fix="does `robo-rl robot serve` still run there, and is this the address that it printed?",
            ) from None
        if answer.status != 200:
            raise _refusal(self.url + path, answer)
        return answer


def _address(url: str) -> str:
    """Return scheme, host and port of a robot's address; raises InvalidSetting."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        pass
    raise InvalidSetting("This is no address of a robot.", got=url, allowed="http://HOST:PORT")


def _object(content: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refusal(url: str, answer: Response) -> RobotError:
    facts = _object(answer.content) or {}
    if answer.status == 423:
        return RobotStopped(printable(str(facts.get("mode"))), printable(str(facts.get("reason", ""))))
    if kind := FAULTS.get(str(facts.get("error"))):
        return kind(printable_lines(str(facts.get("message"))[:1000]))
    why = printable(str(facts.get("message") or answer.headers.get("x-robo-reason") or f"status {answer.status}"))
    other = RobotUnavailable if answer.status >= 500 else _REFUSALS.get(answer.status, RobotError)
    return other(f"{url} refuses: {why}", got=f"status {answer.status}")
