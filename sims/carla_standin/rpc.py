"""The port of calls: msgpack-rpc, answered in the order of arrival, at once if a client waits for the answer."""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgpack

from carla_standin.connections import Connection
from carla_standin.log_once import log_once

LOG = logging.getLogger(__name__)
REQUEST, REPLY = 0, 1
LARGEST = 4 * 1024 * 1024
"""Largest memory [bytes] for incomplete calls of all clients together; above it, the client with the most is disconnected.

Maps are the largest calls. An incomplete call may take 80 times as much memory if it is a list of empty lists.
"""
LONGEST = 100_000
"""Largest number of elements of a list in a call; the longest lists are batches. Memory is allocated for the whole list at
once."""
MOST_WITHHELD = 64 * 1024
"""Largest number of bytes of answers that are kept back for a client that waits for none; they are sent with the next
awaited one."""
AFTER: dict[tuple[object, object], str] = {("apply_batch", "tick_cue"): "tick_of_batch"}
"""Two successive calls of a client -> call that is carried out in place of the second."""
MOST_CLEANUPS = 10
"""Largest number of cleanup calls that are kept for one client; they are made when the client's connection ends."""
LONGEST_REASON = 400
"""Largest number of characters of a refusal's reason in the log."""
ENDED_BY = {"add_traffic_manager_running": "forget_traffic_manager"}
"""Call of a client -> cleanup call with the same arguments after the client has disconnected."""


class Caller:
    """Connection of one client, whose calls are answered."""

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        calls: Mapping[str, Callable[..., object]],
        defer: Callable[[str, Callable[[], None]], bool] = lambda name, send: False,
    ) -> None:
        """Create the server's side of one client's connection.

        Args:
            sock: The connected socket.
            selector: Selector that waits for data.
            calls: Name of a remote call -> function.
            defer: Given a call's name and a function that sends the answer: True if it will send the answer later.
        """
        self.connection = Connection(sock, selector, self.serve)
        self.calls, self.defer = calls, defer
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
        """[bytes] received in all, of these in complete calls, and in the incomplete call at the end"""
        self.pack = msgpack.Packer(unicode_errors="replace").pack
        self.withheld = b""
        self.last: object = None
        self.cleanups: list[tuple[str, list[object]]] = []
        """Calls to make after the client has disconnected."""

    def serve(self, mask: int) -> None:
        """Read from the connection and answer the calls that arrived; send pending answers."""
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
        if not self.connection.is_open:
            self.close()
            return
        self._keep(self.fed - self.finished)

    def close(self) -> None:
        """Close the connection, drop an incomplete call, and make the cleanup calls."""
        self.connection.close()
        for name, arguments in self.cleanups:
            self.calls[name](*arguments)
        self.cleanups = []
        self.unpacker = None
        UNFINISHED.discard(self)

    def _keep(self, half: int) -> None:
        """Note the size [bytes] of the incomplete call; if all exceed the limit, disconnect the client of the largest."""
        if not half and not self.half:
            return
        self.half = half
        (UNFINISHED.add if half else UNFINISHED.discard)(self)
        if sum(caller.half for caller in UNFINISHED) > LARGEST:
            most = max(UNFINISHED, key=lambda caller: caller.half)
            LOG.warning("a client is disconnected: its call is incomplete after %d kB", most.half // 1000)
            most.close()

    def _answer(self, message: Any) -> None:
        if not isinstance(message, list) or len(message) != 4 or message[0] != REQUEST or not isinstance(message[3], list):
            raise ValueError("no request of msgpack-rpc")
        _, number, name, arguments = message
        error, result = self._called(name, arguments[1:])
        is_awaited = arguments[:1] != [[True]]
        if not is_awaited and name in self.calls:
            _say_refusal(name, error, result)
        answer = self.withheld + self.pack([REPLY, number, error, result])
        # The first argument is [true] if the client does not wait for the answer.
        if not is_awaited and len(answer) < MOST_WITHHELD:
            self.withheld = answer
            return
        self.withheld = b""
        if not (isinstance(name, str) and self.defer(name, partial(self.connection.send, answer))):
            self.connection.send(answer)

    def _called(self, name: object, arguments: list[object]) -> tuple[str | None, object]:
        call = self.calls.get(name) if isinstance(name, str) else None
        if call is None:
            log_once(f"unknown call: {str(name)[:100]}", kind=f"unknown {str(name)[:100]}")
            return f"the stand-in has no call {str(name)[:100]!r}", None
        call = self.calls.get(AFTER.get((self.last, name), ""), call)
        self.last = name
        try:
            result = call(*arguments)
            if name in ENDED_BY and (ENDED_BY[name], arguments) not in self.cleanups[:MOST_CLEANUPS]:
                self.cleanups = [*self.cleanups[-MOST_CLEANUPS:], (ENDED_BY[name], arguments)]
            return None, result
        except Exception as error:  # one bad call must not end the server
            LOG.exception("call %s failed", name)
            return f"{name} failed: {type(error).__name__}: {error}"[:1000], None


def _say_refusal(name: object, error: str | None, result: Any) -> None:
    """Log the error of a call without a waiting client; each reason once."""
    responses = result if name == "apply_batch" and isinstance(result, list) else [result]
    reasons = [error] if error is not None else [reason for response in responses if (reason := _reason(response))]
    if reasons:
        log_once(f"{str(name)[:100]} is refused, and its client does not wait for an answer: {reasons[0]}")


def _reason(response: Any) -> str | None:
    """Return the message of a Response that is an error, [[0, [message]]] or [[true, [message]]]; None for any other."""
    match response:
        case [[flag, [str() as message]]] if flag is True or (flag == 0 and flag is not False):
            return message[:LONGEST_REASON]
    return None


UNFINISHED: set[Caller] = set()
"""Connections with a call of which only a part has arrived."""
