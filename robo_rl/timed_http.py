"""Pools of HTTP connections whose total timeout holds, whatever the other side sends until then.

A timeout of a socket counts from one read to the next, so a server that sends a byte now and then (of headers, of a chunk's
extension) holds a client for as long as it likes. Here each read and each write gets what is left of the exchange.
"""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from typing import Any, cast

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

PIECE = 1 << 14
"""Bytes of one write: at most one record of TLS, which has a timeout of its own."""


class _TimedReads(io.RawIOBase):
    """Bytes of a socket until a time has come."""

    def __init__(self, line: socket.socket, raw: io.RawIOBase, until: float) -> None:
        self._line, self._raw, self._until = line, raw, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        _limit(self._line, self._until)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, line: socket.socket, *arguments: Any, until: float, **options: Any) -> None:
        super().__init__(line, *arguments, **options)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_TimedReads(line, raw, until))


class _Timed(HTTPConnection):
    """A connection of which connecting, tunnel, request and response share one timeout."""

    _until: float | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.response_class = self._response  # type: ignore[assignment]  # it is called as a class is

    def connect(self) -> None:
        self._begin()
        super().connect()

    def request(self, *arguments: Any, **options: Any) -> None:
        self._begin()
        super().request(*arguments, **options)

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        for start in range(0, len(data), PIECE):
            _limit(self.sock, self._end)
            super().send(data[start : start + PIECE])

    def getresponse(self) -> Any:
        self._until = None
        self._begin()  # anew: by now the timeout is what is left of the total
        try:
            return super().getresponse()
        finally:
            self._until = None

    def close(self) -> None:
        self._until = None
        super().close()

    def _new_conn(self) -> socket.socket:
        line = super()._new_conn()
        _limit(line, self._end)  # for TLS and the proxy, which come next
        return line

    def _response(self, line: socket.socket, *arguments: Any, **options: Any) -> _TimedResponse:
        return _TimedResponse(line, *arguments, until=self._end, **options)

    def _begin(self) -> None:
        if self._until is None:
            self._until = time.monotonic() + float(cast("float", self.timeout))

    @property
    def _end(self) -> float:
        assert self._until is not None, "no exchange is under way"
        return self._until


class _TimedTLS(_Timed, HTTPSConnection):
    """The same with TLS."""


class TimedPool(HTTPConnectionPool):
    """Connections without TLS; every request needs a timeout."""

    ConnectionCls = _Timed


class TimedTLSPool(HTTPSConnectionPool):
    """Connections with TLS; every request needs a timeout."""

    ConnectionCls = _TimedTLS


POOLS: dict[str, type[HTTPConnectionPool]] = {"http": TimedPool, "https": TimedTLSPool}
"""By the scheme of an address."""


def _limit(line: socket.socket, until: float) -> None:
    """Set the timeout of a socket to what is left; raises TimeoutError if that is nothing."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    line.settimeout(left)
