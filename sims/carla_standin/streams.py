"""The streaming port: a client connects once for each stream, sends its id, and then reads."""

from __future__ import annotations

import selectors
import socket
import time

from carla_standin import layouts
from carla_standin.connections import MOST_CONNECTIONS, Connection, accepted
from carla_standin.errors import Refused

SUBSCRIPTION_TIMEOUT = 0.25
"""Longest time [s] for which a tick waits for a subscription that was announced."""
RENEWAL = 1.0
"""Time [s] that a client has to reopen its stream of snapshots after a map was loaded."""


class Subscriber:
    """Client's connection to the streaming port, for one stream."""

    def __init__(self, sock: socket.socket, selector: selectors.BaseSelector) -> None:
        self.connection = Connection(sock, selector, self)
        self.said = b""
        self.stream: int | None = None


class Streams:
    """The streaming port: sends the messages of each stream to the clients that subscribed to it."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.port = int(listener.getsockname()[1])
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.subscribers: dict[int, list[Subscriber]] = {}
        self.announced: set[int] = set()
        self.may_drop = True
        """Whether a slow reader loses messages; False if a client waits for each."""
        self.renewed_by = 0.0

    def fileno(self) -> int:
        """Return the file descriptor for another selector."""
        return self.selector.fileno()

    def announce(self, stream: int) -> bytes:
        """Return the token by which a client subscribes to a stream, and note that its connection is to come.

        Raises Refused if the number cannot be one of a stream.
        """
        if not isinstance(stream, int) or not 0 < stream < 2**32:
            raise Refused("This is no number of a stream.", got=stream)
        token = layouts.token(stream, self.port)
        if len(self.announced) < MOST_CONNECTIONS:
            self.announced.add(stream)
        return token

    def is_heard(self, stream: int) -> bool:
        """Return True if a client is subscribed to a stream."""
        return bool(self.subscribers.get(stream))

    def send(self, stream: int, *parts: bytes | memoryview) -> None:
        """Send a message to all subscribers of a stream."""
        subscribers = self.subscribers.get(stream)
        if subscribers:
            length = layouts.length_of(parts)
            for subscriber in subscribers:
                subscriber.connection.send(length, *parts, may_drop=self.may_drop)
            if not all(subscriber.connection.is_open for subscriber in subscribers):
                self._keep(stream, [subscriber for subscriber in subscribers if subscriber.connection.is_open])

    def _keep(self, stream: int, subscribers: list[Subscriber]) -> None:
        self.subscribers[stream] = subscribers
        if not subscribers:
            del self.subscribers[stream]

    def renew(self) -> None:
        """Expect a client to reopen its stream of snapshots.

        The client of 0.9.16 may corrupt its memory if a snapshot arrives while it closes that stream: none is sent before.
        """
        self.renewed_by = time.monotonic() + RENEWAL

    def until_renewed(self) -> float:
        """Return the time [s] for which no unrequested step should be sent."""
        return max(self.renewed_by - time.monotonic(), 0.0) if self.renewed_by else 0.0

    def wait(self) -> None:
        """Wait until every announced subscription is connected, for a limited time.

        A client's `listen()` returns before its connection exists, so that the next measurements would get lost.
        """
        if self.announced:
            end = time.monotonic() + SUBSCRIPTION_TIMEOUT
            while self.announced and (left := end - time.monotonic()) > 0:
                self.serve(left)
            self.announced.clear()

    def serve(self, timeout: float = 0.0) -> None:
        """Accept, read and write without blocking longer than `timeout` [s]."""
        for key, mask in self.selector.select(timeout):
            if key.data is None:
                sock = accepted(self.listener, self.selector)
                if sock is not None:
                    Subscriber(sock, self.selector)
            elif mask & selectors.EVENT_WRITE:
                key.data.connection.flush()
            else:
                self._read(key.data)

    def _read(self, subscriber: Subscriber) -> None:
        data = subscriber.connection.received()
        if data is None:
            self._forget(subscriber)
        elif subscriber.stream is None:
            subscriber.said += data
            if len(subscriber.said) >= layouts.LENGTH.size:
                (subscriber.stream,) = layouts.LENGTH.unpack(subscriber.said[: layouts.LENGTH.size])
                self.subscribers.setdefault(subscriber.stream, []).append(subscriber)
                self.announced.discard(subscriber.stream)
                self.renewed_by = 0.0 if subscriber.stream == layouts.WORLD_STREAM else self.renewed_by

    def _forget(self, subscriber: Subscriber) -> None:
        subscriber.connection.close()
        if subscriber.stream is not None:
            others = [other for other in self.subscribers.get(subscriber.stream, ()) if other is not subscriber]
            self._keep(subscriber.stream, others)

    def close(self) -> None:
        """Close all connections and the port."""
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                key.data.connection.close()
        self.selector.close()
        self.listener.close()
