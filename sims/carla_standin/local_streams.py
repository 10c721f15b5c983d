"""Streams to functions of this process, for a world without clients and sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[bytes, bytes | memoryview], object]
"""Called with header and payload of a measurement; the payload is valid until it returns."""


class Outlet(Protocol):
    """Where a world sends its measurements: the part of a server's streams that it needs."""

    port: int
    """Port at which clients subscribe to streams."""
    may_drop: bool
    """Whether a slow reader loses messages."""

    def is_heard(self, stream: int) -> bool:
        """Return True if somebody is subscribed."""

    def send(self, stream: int, *parts: bytes | memoryview) -> None:
        """Send a message to all subscribers."""


class LocalStreams(Outlet):
    """Streams of a world in this process: each has at most one listener."""

    port, may_drop = 0, False

    def __init__(self) -> None:
        self.listeners: dict[int, Listener] = {}

    def is_heard(self, stream: int) -> bool:
        """Return True if a function listens."""
        return stream in self.listeners

    def send(self, stream: int, *parts: bytes | memoryview) -> None:
        """Call the function that is subscribed to a stream, with the header and the payload of a message.

        Args:
            stream: Id of the stream.
            parts: Header and payload.
        """
        header, payload = parts
        self.listeners[stream](bytes(header), payload)
