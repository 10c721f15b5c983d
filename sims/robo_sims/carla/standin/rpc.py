"""The port of calls: msgpack-rpc, answered in the order of arrival, each answer at once where a client waits for it."""

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
LARGEST = 4 * 1024 * 1024
"""[bytes] of calls that have not come to their end, of all clients together; beyond it, whoever has most is given up. Maps are
the largest calls. What has come of a call may take 80 times as much memory, where it is a list of empty lists."""
LONGEST = 100_000
"""Entries of a list in a call: a batch is the longest. Room for all is made when the first has come."""
MOST_WITHHELD = 64 * 1024
"""[bytes] of answers that nobody waits for, kept until one that somebody waits for goes the same way."""
AFTER: dict[tuple[object, object], str] = {("apply_batch", "tick_cue"): "tick_of_batch"}
"""Two calls of a client, one straight after the other -> how the second is understood."""


class Caller:
    """A connected client."""

    def __init__(
        self, sock: socket.socket, selector: selectors.BaseSelector, calls: Mapping[str, Callable[..., object]]
    ) -> None:
        self.connection = Connection(sock, selector, self.serve)
        self.calls = calls
        # Text that is no UTF-8 must not end the connection.
        self.unpacker = msgpack.Unpacker(
            raw=False,
            unicode_errors="replace",
            max_buffer_size=LARGEST,
            max_array_len=LONGEST,
            max_map_len=LONGEST,
            strict_map_key=False,
        )
        self.fed = self.finished = self.half = 0
        """[bytes] that have come, those of calls that have come to their end, and the others"""
        self.pack = msgpack.Packer(unicode_errors="replace").pack
        self.withheld = b""
        self.last: object = None

    def serve(self, mask: int) -> None:
        """Answers what has arrived."""
        if mask & selectors.EVENT_WRITE:
            self.connection.flush()
        if not mask & selectors.EVENT_READ:
            return
        data = self.connection.received()
        if data is None:
            self.close()
            return
        try:
            self.unpacker.feed(data)
            self.fed += len(data)
            for message in self.unpacker:
                self.finished = self.unpacker.tell()
                self._answer(message)
                if not self.connection.is_open:
                    break
        except (ValueError, msgpack.UnpackException, msgpack.BufferFull, RecursionError) as error:
            LOG.warning("a client that does not speak msgpack-rpc is disconnected: %r", error)
            self.close()
            return
        self._keep(self.fed - self.finished)

    def close(self) -> None:
        """Ends the connection and forgets what has come of a call."""
        self.connection.close()
        self.unpacker = None
        UNFINISHED.discard(self)

    def _keep(self, half: int) -> None:
        """Notes how much has come of a call that has not come to its end."""
        if not half and not self.half:
            return
        self.half = half
        (UNFINISHED.add if half else UNFINISHED.discard)(self)
        if sum(caller.half for caller in UNFINISHED) > LARGEST:
            most = max(UNFINISHED, key=lambda caller: caller.half)
            LOG.warning("a client is disconnected: its call has not come to its end after %d kB", most.half // 1000)
            most.close()

    def _answer(self, message: Any) -> None:
        if not isinstance(message, list) or len(message) != 4 or message[0] != REQUEST or not isinstance(message[3], list):
            raise ValueError("no request of msgpack-rpc")
        _, number, name, arguments = message
        error, result = self._called(name, arguments[1:])
        answer = self.withheld + self.pack([REPLY, number, error, result])
        # The first argument says whether the client goes on without waiting: [true].
        if arguments[:1] == [[True]] and len(answer) < MOST_WITHHELD:
            self.withheld = answer
            return
        self.withheld = b""
        self.connection.send(answer)

    def _called(self, name: object, arguments: list[object]) -> tuple[str | None, object]:
        call = self.calls.get(name) if isinstance(name, str) else None
        if call is None:
            LOG.warning("unknown call: %.100s", name)
            return f"the stand-in has no call {str(name)[:100]!r}", None
        call = self.calls.get(AFTER.get((self.last, name), ""), call)
        self.last = name
        try:
            return None, call(*arguments)
        except Exception as error:  # one bad call must not end the server
            LOG.exception("call %s failed", name)
            return f"{name} failed: {type(error).__name__}: {error}"[:1000], None


UNFINISHED: set[Caller] = set()
"""Those of whose call only a part has come."""
