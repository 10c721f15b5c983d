"""Bounded set of a page server's open connections: a newcomer displaces the one that matters least."""

from __future__ import annotations

import asyncio
import itertools
from enum import IntEnum

MOST_CONNECTIONS = 128
"""Open connections of a server; the process needs its other file descriptors for what it records."""
PER_TURN = 8
"""Connections that are accepted in one turn of the server's thread."""
WAITING = 1024
"""Connections that wait to be accepted; beyond it the system lets a newcomer try again after a second."""


class Rank(IntEnum):
    """Importance of a connection; the least is closed first, and among equals the oldest."""

    UNKNOWN = 0
    """No whole request has come."""
    IDLE = 1
    """Its requests are answered, or it is a websocket without a token."""
    ASKING = 2
    """A request is being answered."""
    STOPPING = 3
    """A robot is being stopped."""
    TRUSTED = 4
    """It has shown the page's token."""


class Connections:
    """Open connections of one server; for its thread alone."""

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self._most = most
        self._ranks: dict[asyncio.Transport, tuple[Rank, int]] = {}
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, transport: asyncio.Transport) -> None:
        """Add a connection; beyond the limit another one is closed at once, without waiting for its reader."""
        while len(self._ranks) >= self._most:
            least = min(self._ranks, key=self._ranks.__getitem__)
            del self._ranks[least]
            least.abort()
        self._ranks[transport] = Rank.UNKNOWN, next(self._count)

    def abort(self) -> None:
        """Close all connections at once."""
        for transport in [*self._ranks]:
            transport.abort()

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._ranks.pop(transport, None)

    def rank(self, transport: asyncio.Transport, rank: Rank) -> None:
        """Set the rank of a connection, unless it is gone or trusted."""
        if transport in self._ranks and self._ranks[transport][0] not in (rank, Rank.TRUSTED):
            self._ranks[transport] = rank, next(self._count)

    def has(self, peer: tuple[str, int]) -> bool:
        """Return whether a connection is open, given address and port of its other end."""
        return any((transport.get_extra_info("peername") or ())[:2] == peer for transport in self._ranks)

    def trust(self, peer: tuple[str, int]) -> None:
        """Note that a connection has shown the token; peer: address and port of its other end."""
        for transport in self._ranks:
            if (transport.get_extra_info("peername") or ())[:2] == peer:
                self.rank(transport, Rank.TRUSTED)
                return
