"""HTTP client with one timeout for the whole exchange, also against a server that sends bytes very slowly.

The timeout of a socket counts from one read to the next, so that a server which sends a byte now and then holds a client
indefinitely. Here each read and write gets the remaining time of the exchange. Built on httpcore, the transport of httpx,
without httpx's own layer, because a robot's control loop waits for these exchanges.
"""

from __future__ import annotations

import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore
from typing_extensions import override

PIECE = 1 << 14
"""Largest number of bytes of one write: one TLS record."""
KEPT = 2
"""Idle connections that a client keeps, by default."""
FAULTS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    OSError,
)
"""Errors of httpcore, which have no common base."""


class NoResponse(Exception):
    """Error: no complete HTTP response arrived; the text has the reason."""


class ResponseTooLarge(Exception):
    """Error: an HTTP response is larger than the caller allows."""


class Response(NamedTuple):
    """A complete HTTP response: status, headers and body."""

    status: int
    headers: Mapping[str, str]
    """Header's name in lower case -> value."""
    content: bytes


class TimedClient:
    """HTTP client with a time limit for whole exchanges, for any number of threads.

    It keeps connections open, repeats no request and follows no redirection.
    """

    def __init__(self, proxy: str = "", kept: int = KEPT) -> None:
        """Prepare the client; no connection is opened.

        Args:
            proxy: URL of an HTTP proxy, which may hold user name and password; "" for none.
            kept: Largest number of idle connections to keep.
        """
        self._deadline = _Deadline()
        options: dict[str, Any] = {
            "network_backend": _Backend(self._deadline),
            "max_connections": None,
            "max_keepalive_connections": kept,
        }
        self._pool = _proxied(proxy, options) if proxy else httpcore.ConnectionPool(**options)
        self.close = weakref.finalize(self, self._pool.close)
        """Closes the connections; otherwise they are closed when the client is garbage collected."""

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout: float, largest: int
    ) -> Response:
        """Send a request and return the response.

        Args:
            method: HTTP method.
            url: Address.
            headers: Name -> value.
            content: Body; None for none.
            timeout: Time from now to the last byte [s]; only resolving the host name may take longer.
            largest: Largest size of the response's body in bytes.

        Raises:
            NoResponse: No complete response arrived in time.
            ResponseTooLarge: The body is larger than `largest`.
            ValueError: The request cannot be sent.
        """
        self._deadline.until = time.monotonic() + timeout
        found = bytearray()
        try:
            with self._pool.stream(method, url, headers=[*headers.items()], content=content) as response:
                for piece in response.iter_stream():
                    found += piece
                    if len(found) > largest:
                        raise ResponseTooLarge(f"the response has more than {largest} bytes")
        except FAULTS as error:
            raise NoResponse(f"{type(error).__name__}: {error}") from None
        fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return Response(response.status, fields, bytes(found))


class _Deadline(threading.local):
    """Time at which the present exchange of a thread must end [s]."""

    until = 0.0

    def left(self) -> float:
        """Return the remaining seconds; raises ReadTimeout if there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("timed out")
        return left


class _Backend(httpcore.SyncBackend):
    """Opens connections, within a deadline."""

    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline

    @override
    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *others: Any, **more: Any) -> _Stream:
        return _Stream(super().connect_tcp(host, port, self._deadline.left(), *others, **more), self._deadline)


class _Stream(httpcore.NetworkStream):
    """Connection with a deadline for each read and write."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            self._stream.write(buffer[start : start + PIECE], self._deadline.left())

    @override
    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._deadline.left()), self._deadline)

    @override
    def close(self) -> None:
        self._stream.close()

    @override
    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _proxied(proxy: str, options: Mapping[str, Any]) -> httpcore.HTTPProxy:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    sign_in = None
    if parts.username is not None:
        sign_in = (unquote(parts.username).encode(), unquote(parts.password or "").encode())
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"a proxy of scheme {parts.scheme}")
    return httpcore.HTTPProxy(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", proxy_auth=sign_in, **options)
