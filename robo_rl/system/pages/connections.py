"""The open connections of a web server: beyond a largest number, a new connection closes the least important one."""

from __future__ import annotations

import asyncio
import itertools
from enum import IntEnum

MOST_CONNECTIONS = 128
"""Largest number of open connections; the process needs its other file descriptors for what it records."""
PER_TURN = 8
"""Largest number of connections accepted in one turn of the server's event loop."""
WAITING = 1024
"""Largest number of connections that wait to be accepted; the system lets later ones try again after a second."""


class Rank(IntEnum):
    """Importance of a connection to a web server: the lowest is closed first, among equal ones the oldest."""

    UNKNOWN = 0
    """No complete request has arrived on the connection yet."""
    IDLE = 1
    """All requests of the connection are answered, or it is a websocket that has sent no token."""
    ASKING = 2
    """A request of the connection is being answered."""
    STOPPING = 3
    """A request of the connection is stopping a robot."""
    TRUSTED = 4
    """The connection has sent the page's token, so that it belongs to the page."""


class Connections:
    """The open connections of one web server with their importance; used only in the server's thread."""

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self._most = most
        self._ranks: dict[asyncio.Transport, tuple[Rank, int]] = {}
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, transport: asyncio.Transport) -> None:
        """Add a connection; beyond the limit the least important one is closed at once."""
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
        """Remove a connection that has ended."""
        self._ranks.pop(transport, None)

    def rank(self, transport: asyncio.Transport, rank: Rank) -> None:
        """Set the importance of a connection, unless the connection is closed or trusted."""
        if transport in self._ranks and self._ranks[transport][0] not in (rank, Rank.TRUSTED):
            self._ranks[transport] = rank, next(self._count)

    def has(self, peer: tuple[str, int]) -> bool:
        """Return True if a connection from `peer` (address, port) is open."""
        return any((transport.get_extra_info("peername") or ())[:2] == peer for transport in self._ranks)

    def trust(self, peer: tuple[str, int]) -> None:
        """Rank the connection from `peer` (address, port) as trusted, because it has sent the token."""
        for transport in self._ranks:
            if (transport.get_extra_info("peername") or ())[:2] == peer:
                self.rank(transport, Rank.TRUSTED)
                return
