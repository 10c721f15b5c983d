"""The port of calls: msgpack-rpc, answered in the order of arrival, each answer written at once."""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from robo_sims.carla.standin.connections import Connection

LOG = logging.getLogger(__name__)
REQUEST, REPLY = 0, 1
LARGEST = 64 * 1024 * 1024
"""[bytes] of a call; maps are the largest."""


class Caller:
    """A connected client."""

    def __init__(
        self, sock: socket.socket, selector: selectors.BaseSelector, calls: Mapping[str, Callable[..., object]]
    ) -> None:
        self.connection = Connection(sock, selector, self.serve)
        self.calls = calls
        # Text that is no UTF-8 must not end the connection.
        self.unpacker = msgpack.Unpacker(raw=False, unicode_errors="replace", max_buffer_size=LARGEST, strict_map_key=False)
        self.pack = msgpack.Packer(unicode_errors="replace").pack

    def serve(self, mask: int) -> None:
        """Answers what has arrived."""
        if mask & selectors.EVENT_WRITE:
            self.connection.flush()
        if not mask & selectors.EVENT_READ:
            return
        data = self.connection.received()
        if data is None:
            self.connection.close()
            return
        try:
            self.unpacker.feed(data)
            for message in self.unpacker:
                self._answer(message)
        except (ValueError, msgpack.UnpackException, msgpack.BufferFull) as error:
            LOG.warning("a client that does not speak msgpack-rpc is disconnected: %s", error)
            self.connection.close()

    def _answer(self, message: Any) -> None:
        if not isinstance(message, list) or len(message) != 4 or message[0] != REQUEST or not isinstance(message[3], list):
            raise ValueError("no request of msgpack-rpc")
        _, number, name, arguments = message
        error, result = self._called(name, arguments[1:])  # the first says whether the client waits
        self.connection.send(self.pack([REPLY, number, error, result]))

    def _called(self, name: object, arguments: list[object]) -> tuple[str | None, object]:
        call = self.calls.get(name) if isinstance(name, str) else None
        if call is None:
            LOG.warning("unknown call: %s", name)
            return f"the stand-in has no call {name!r}", None
        try:
            return None, call(*arguments)
        except Exception as error:  # one bad call must not end the server
            LOG.exception("call %s failed", name)
            return f"{name} failed: {type(error).__name__}: {error}", None
