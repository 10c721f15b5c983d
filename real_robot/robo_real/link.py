"""A kept connection to a robot's server. Every call ends in time; nothing is sent twice, because a motion may have begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import urllib3

from robo_rl.errors import InvalidSetting, RobotBusy, RobotError, RobotStopped, RobotUnavailable, printable
from robo_rl.timed_http import POOLS

TIMEOUT = 5.0
"""[s] of a call that no motion waits for: a server may be busy, or just begin"""
_REFUSALS = {409: RobotBusy}


class Link:
    """Asks one server."""

    def __init__(self, url: str, timeout: float | None = None) -> None:
        """Opens nothing. url: such as http://127.0.0.1:5000. timeout: [s] of a call that names none, TIMEOUT by default."""
        parsed = urllib3.util.parse_url(url)
        if parsed.scheme not in ("http", "https") or parsed.host is None:
            raise InvalidSetting("This is no address of a robot.", got=url, allowed="http://HOST:PORT")
        self.url, self._timeout = f"{parsed.scheme}://{parsed.netloc}", TIMEOUT if timeout is None else timeout
        port = parsed.port or {"http": 80, "https": 443}[parsed.scheme]
        self._pool = POOLS[parsed.scheme](parsed.host, port, maxsize=2, block=False, retries=False)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float | None = None) -> bytes:
        """Returns the answer to a POST; raises RobotUnavailable, RobotBusy, RobotStopped or RobotError."""
        return bytes(self._ask("POST", path, body, timeout).data)

    def get(self, path: str) -> bytes:
        """Returns the answer to a GET."""
        return bytes(self._ask("GET", path, None, None).data)

    def json(
        self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST", timeout: float | None = None
    ) -> dict[str, Any]:
        """Returns a JSON answer; raises RobotUnavailable where it is none."""
        found = _object(self._ask(method, path, {} if body is None and method == "POST" else body, timeout).data)
        if found is None:
            raise RobotUnavailable(f"{self.url}{path} answers no JSON object.", fix="is it a robot's server?")
        return found

    def picture(self, path: str, *, timeout: float | None = None) -> tuple[bytes, Mapping[str, str]]:
        """Returns the bytes and the headers of a picture."""
        answer = self._ask("GET", path, None, timeout)
        return answer.data, answer.headers

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {} if content is None else {"Content-Type": "application/json"}
        limit = urllib3.Timeout(total=self._timeout if timeout is None else timeout)
        try:
            answer = self._pool.urlopen(method, path, body=content, headers=headers, timeout=limit)
        except urllib3.exceptions.HTTPError as error:
            raise RobotUnavailable(
                f"{self.url}{path} gives no answer.",
                got=printable(f"{type(error).__name__}: {error}"),
                allowed=f"within {limit.total} s",
                fix="does `robo-rl robot serve` still run there, and is this the address that it printed?",
            ) from None
        if answer.status != 200:
            raise _refusal(self.url + path, answer.status, answer.data, answer.headers)
        return answer


def _object(content: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refusal(where: str, status: int, content: bytes, headers: Mapping[str, str]) -> RobotError:
    told = _object(content) or {}
    if status == 423:
        return RobotStopped(printable(str(told.get("mode"))), printable(str(told.get("reason", ""))))
    why = printable(str(told.get("message") or headers.get("X-Robo-Reason") or f"status {status}"))
    kind = RobotUnavailable if status >= 500 else _REFUSALS.get(status, RobotError)
    return kind(f"{where} refuses: {why}", got=f"status {status}")
