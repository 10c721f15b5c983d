"""Requests to a chat-completions server: temporary faults are retried, others raise errors.

The key is in one header of each request, and never in a setting, an error, an answer or a file.
"""

from __future__ import annotations

import email.utils
import json
import math
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import openai
from typing_extensions import override

from robo_rl.errors import JudgeUnavailable, QuestionNotAccepted, printable
from robo_rl.rewards.chat.question import Status
from robo_rl.system.timed_http import NoResponse, ResponseTooLarge, TimedClient

FIRST_WAIT = 0.5
"""[s] before the second attempt; the wait doubles with each further attempt."""
LARGEST = 1 << 20
"""Largest size of a reply in bytes; an answer has a few hundred."""
LONGEST_MESSAGE = 300
"""Largest number of characters of a server's message in an error."""
HEADERS = {"accept", "authorization", "content-length", "content-type", "host"}
"""Names of the HTTP headers that are sent; others would tell about this machine, or come from its environment variables."""
OURS = {"user-agent": "robo-rl", "accept-encoding": "identity"}
"""HTTP headers that replace those of the client library."""
BLOCKED = {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}
"""Error codes of servers that refuse a question."""


@dataclass(frozen=True)
class Timeouts:
    """Time limits of one question to a chat-completions server, all of its attempts together."""

    timeout_s: float
    """[s] for one attempt"""
    deadline_s: float
    """[s] for all attempts and the waits between them"""
    retries: int
    """attempts after the first one failed, 0 or more"""
    longest_wait_s: float
    """[s] longest wait between two attempts"""


class NoReply(Exception):
    """Error inside this package: a question got no answer, but the next question may get one."""

    def __init__(self, status: Status, problem: str) -> None:
        super().__init__(problem)
        self.status: Status = status


class _Passing(Exception):
    """A temporary fault; wait: seconds until a retry, if the server named them."""

    def __init__(self, status: Status, problem: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.status: Status = status
        self.wait = wait


class Pace:
    """Limiter that spaces requests evenly in time, over all threads."""

    def __init__(self, per_minute: float) -> None:
        self._gap, self._next, self._lock = (60 / per_minute if per_minute else 0.0), 0.0, threading.Lock()

    def turn(self) -> float:
        """Reserve the next time slot, and return the seconds until it."""
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self._gap
            return at - now

    def __deepcopy__(self, memo: object) -> Pace:
        return self  # copies of a judge ask the same server


class BoundedTransport(httpx2.BaseTransport):
    """Transport of the HTTP library httpx with one time limit for the whole exchange.

    It sends only the headers in HEADERS, decompresses nothing, and follows no redirection.
    """

    def __init__(self, kept: int, *, through_proxy: bool) -> None:
        """Prepare the transport.

        Args:
            kept: Largest number of idle connections.
            through_proxy: True to use the proxies that environment variables name.
        """
        self._kept, self._through_proxy, self._clients, self._lock = (
            kept,
            through_proxy,
            dict[str, TimedClient](),
            threading.Lock(),
        )

    @override
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the complete response.

        Raises NoResponse, ResponseTooLarge, or ValueError for a request that cannot be sent.
        """
        url, timeout = str(request.url), request.extensions["timeout"]["read"]
        sent = {name: value for name, value in request.headers.items() if name in HEADERS} | OURS
        client = self._client(_proxy_for(url) if self._through_proxy else "")
        found = client.request(request.method, url, headers=sent, content=request.read(), timeout=timeout, largest=LARGEST)
        kept = {name: value for name, value in found.headers.items() if name == "retry-after"}
        return httpx2.Response(found.status, headers=kept, content=found.content)

    def _client(self, proxy: str) -> TimedClient:
        with self._lock:
            if proxy not in self._clients:
                self._clients[proxy] = TimedClient(proxy, self._kept)
            return self._clients[proxy]


class Connections:
    """OpenAI's client, with connections that stay open between questions, for any number of threads."""

    def __init__(self, base_url: str, kept: int, *, through_proxy: bool) -> None:
        """Prepare the client.

        Args:
            base_url: Address of the server.
            kept: Largest number of idle connections, as many as questions are sent at once.
            through_proxy: True to use the proxies that environment variables name.
        """
        transport = BoundedTransport(kept, through_proxy=through_proxy)
        client = httpx2.Client(transport=transport, follow_redirects=False, trust_env=False)
        self.client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=client)

    def __deepcopy__(self, memo: object) -> Connections:
        return self  # copies of a judge ask the same server


class Transport:
    """Sends one request to a server, with retries after temporary faults; `attempts` counts them."""

    def __init__(
        self,
        key: str,
        timeouts: Timeouts,
        pace: Pace,
        connections: Connections,
        stop: threading.Event,
    ) -> None:
        self._key, self._timeouts, self._pace, self._stop = key, timeouts, pace, stop
        self._client, self.attempts = connections.client, 0

    def post(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return the JSON object of the reply.

        Raises NoReply, or JudgeUnavailable if later questions would fail in the same way.
        """
        until = time.monotonic() + self._timeouts.deadline_s
        for attempt in range(self._timeouts.retries + 1):
            self._sleep(self._pace.turn(), until)
            self.attempts += 1
            try:
                return self._attempt(body, until)
            except _Passing as fault:
                problem, status = printable(self.redacted(str(fault)), 2 * LONGEST_MESSAGE), fault.status
                # a server's "at once", or a date that has passed, does not take away our own wait
                wait = max(FIRST_WAIT * 2**attempt * random.uniform(0.5, 1), fault.wait or 0.0)
            if attempt < self._timeouts.retries:
                self._sleep(min(wait, self._timeouts.longest_wait_s), until, status, problem)
        raise NoReply(status, problem)

    def redacted(self, words: str) -> str:
        """Return a text from a server with the key removed, which the server may send back."""
        return words.replace(self._key, "[key]") if self._key else words

    def _sleep(
        self, seconds: float, until: float, status: Status = "unreachable", problem: str = "the deadline has passed"
    ) -> None:
        """Wait; raises NoReply at once if the deadline would pass meanwhile."""
        if time.monotonic() + seconds > until or self._stop.wait(seconds):
            raise NoReply(status, problem)

    def _attempt(self, body: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        fields = {name: value for name, value in body.items() if name not in ("model", "messages")}
        headers = {"Authorization": f"Bearer {self._key}" if self._key else openai.Omit()}
        timeout = max(0.001, min(self._timeouts.timeout_s, until - time.monotonic()))
        try:
            response = self._client.chat.completions.with_raw_response.create(
                model=body["model"], messages=body["messages"], extra_body=fields, extra_headers=headers, timeout=timeout
            ).http_response
        except openai.APIStatusError as error:
            response = error.response
        except ResponseTooLarge:
            raise NoReply("garbage", f"the reply has more than {LARGEST} bytes") from None
        except NoResponse as error:
            limit = "timeout_s" if timeout >= self._timeouts.timeout_s else "deadline_s"
            advice = (
                f": no answer within {timeout:.4g} s ({limit}); a slow model needs more" if "ReadTimeout" in str(error) else ""
            )
            raise _Passing("unreachable", f"{error}{advice}") from None
        except ValueError as error:  # of a library; its words may be a header's, with the key in it
            raise _Passing("unreachable", f"{type(error).__name__} in a request") from None
        return self._judged(response)

    def _judged(self, response: httpx2.Response) -> Mapping[str, Any]:
        """Return the JSON object of a successful reply.

        Raise the error for another status, or for an error sent with status 200.
        """
        found, code, said = _object(response.content), response.status_code, f"HTTP {response.status_code}"
        if code == 200:
            if found is None:
                raise _Passing("unreachable", "the reply is not a JSON object")
            if (failed := _failed(found)) is None:
                return found
            found, code, said = dict(failed), _number_of(failed), "HTTP 200 with an error"
        message, kind = _error_of(found, response.content)
        words = printable(self.redacted(f"{said}: {message}"), LONGEST_MESSAGE)
        if kind in BLOCKED:
            raise NoReply("refused", words)
        if code == 429 and kind != "insufficient_quota":
            raise _Passing("too many requests", words, retry_after(response.headers.get("retry-after"), time.time()))
        if code in (408, 409, 425) or code >= 500:
            raise _Passing("unreachable", words, retry_after(response.headers.get("retry-after"), time.time()))
        meaning, fix = MEANINGS.get(code, ("does not accept the question.", "look at its message and at the judge's settings"))
        error = QuestionNotAccepted if code in (400, 413, 422) else JudgeUnavailable
        raise error(f"{self.redacted(str(self._client.base_url))} {meaning}", got=words, fix=fix)


MEANINGS = {
    401: ("rejects the key.", "put a valid one into the environment variable that key_variable names"),
    403: ("does not allow this.", "a key that may use this model, in the environment variable that key_variable names"),
    404: ("does not have this model, or is no such address.", "look at base_url, which mostly ends in /v1, and at model"),
    413: ("says that the question is too large.", "smaller pictures: longest_side"),
    429: ("says that the account is empty.", "fill it; the same command goes on where this one stopped"),
}


def retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds in a Retry-After header, which holds seconds or a date; None if it is unusable.

    now: wall-clock time [s since 1970], for dates.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if not math.isnan(seconds) else None


def _proxy_for(url: str) -> str:
    """Return the proxy that environment variables name for an address; "" for none."""
    address, proxies = urlsplit(url), getproxies()
    if proxy_bypass(address.hostname or ""):
        return ""
    return proxies.get(address.scheme) or proxies.get("all", "")


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _failed(reply: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the part of a reply that holds an error, as gateways send it with status 200; None if there is none."""
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return next((part for part in (reply, choice) if isinstance(part, dict) and part.get("error")), None)


def _number_of(failed: Mapping[str, Any]) -> int:
    """Return the HTTP status of an error that was sent with status 200: the one it names, else 502, a temporary fault."""
    error = failed["error"]
    number = error.get("code") if isinstance(error, dict) else None
    return number if type(number) is int and 400 <= number < 600 else 502


def _error_of(found: Mapping[str, Any] | None, body: bytes) -> tuple[str, str]:
    """Return message and code of an error in OpenAI's format; for other replies their text."""
    error = (found or {}).get("error")
    if isinstance(error, dict):
        return str(error.get("message")), str(error.get("code") or error.get("type"))
    return str(error) if error else " ".join(body.decode(errors="replace").split()), ""
