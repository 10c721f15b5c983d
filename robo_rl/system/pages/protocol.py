"""HTTP protocol of the web servers here: uvicorn's, with limits for connections, waiting times and requests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from robo_rl.system.pages.connections import Connections, Rank

LARGEST_HEAD = 1 << 14
"""Bytes of request line and headers, unless the server says another number."""
DRAINING = 1.0
"""[s] in which the rest of a refused request is discarded, so that the end of the connection does not overtake the answer."""
MOST_AHEAD = 1 << 16
"""Bytes of further requests that a client may send before it has the answer to the present one."""


class BadRequest(h11.RemoteProtocolError):
    """Error: an HTTP request is refused because of its head, before its body is read."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words, error_status_hint=status)
        self.status, self.words = status, words


def always_asking(path: str) -> Rank:
    """Return the importance ASKING of a connection for a request to any path."""
    return Rank.ASKING


@dataclass(frozen=True)
class Rules:
    """Limits and checks of a web server for requests."""

    check: Callable[[h11.Request], None]
    """Function that raises BadRequest for a request that is refused because of its head"""
    refusal: Callable[[int, str], tuple[Mapping[str, str], bytes]]
    """Function (status, reason) -> (headers, body) of the answer to such a request"""
    reading: float
    """[s] for a head, from its first byte on; uvicorn's timeout_keep_alive limits the wait for a request"""
    writing: float | None = None
    """[s] for the client to take an answer; None for no limit"""
    rank: Callable[[str], Rank] = always_asking
    """Function from a path to the importance of the connection while the request is answered"""


class Connection(H11Protocol):
    """One connection of a web server, closed if no request arrives in time, or a request is not complete in time."""

    def __init__(self, open_ones: Connections, rules: Rules, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._open_ones, self._rules = open_ones, rules
        self.conn = _Requests(rules.check, self.config.h11_max_incomplete_event_size)
        self._until: float | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._is_draining = False

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._open_ones.add(transport)
        self._expect()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.resume_writing()
        self._open_ones.remove(self.transport)

    @override
    def on_response_complete(self) -> None:
        self._until = None
        super().on_response_complete()
        self._rank()

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_draining:
            return
        super().data_received(data)
        if self._is_asking and len(self.conn.trailing_data[0]) > MOST_AHEAD:
            self.transport.abort()  # uvicorn would read on, and keep all of it
            return
        self._rank()
        if self.transport.get_protocol() is self and not self._is_asking:
            self._expect()

    @override
    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's, of which uvicorn uses a part
        """Answer the complete requests that the client sent before it closed its half of the connection."""
        is_whole = self._is_asking and not self.cycle.more_body
        if is_whole:
            self.cycle.keep_alive = False
        return is_whole

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._rules.writing is not None:
            self._unread = self.loop.call_later(self._rules.writing, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    @override
    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # without waiting for a reader of the last answer

    @override
    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        status = getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)
        headers, body = self._rules.refusal(status, str(error or msg))
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        for event in (
            h11.Response(status_code=status, headers=lines, reason=HTTPStatus(status).phrase),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._is_draining = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(DRAINING, self.transport.abort)

    @property
    def _is_asking(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _rank(self) -> None:
        if self.cycle is not None and self.transport.get_protocol() is self:
            self._open_ones.rank(self.transport, self._rules.rank(self.scope["path"]) if self._is_asking else Rank.IDLE)

    def _expect(self) -> None:
        """Wait for the rest of a head, from its first byte on."""
        if self._until is None:
            self._until = self.loop.time() + self._rules.reading
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self._until, self.timeout_keep_alive_handler)


class _Requests(h11.Connection):
    """Parser of requests that checks each one when its head has arrived."""

    def __init__(self, check: Callable[[h11.Request], None], largest_head: int | None) -> None:
        super().__init__(h11.SERVER, largest_head or LARGEST_HEAD)
        self._check = check

    @override
    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check(event)
        return event
