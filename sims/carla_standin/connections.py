"""Non-blocking connections with a buffer for data that cannot be sent at once."""

from __future__ import annotations

import logging
import selectors
import socket

LOG = logging.getLogger(__name__)
MOST_PENDING = 256 * 1024 * 1024
"""[bytes] Most data buffered for slow readers, in all; beyond it, the connection with the most is closed."""
MOST_CONNECTIONS = 400
"""Largest number of connections at each port, because many systems let a process open 1024 files."""
ROOM = 4 * 1024 * 1024
"""[bytes] Kernel buffer of each direction: a picture fits into one call."""
BUFFER = memoryview(bytearray(1 << 16))
"""Read buffer of all connections; its size limits a read, so that other connections get their turn."""


class Connection:
    """A client's socket, registered with a selector; `data` of the registration is `handler`."""

    def __init__(self, sock: socket.socket, selector: selectors.BaseSelector, handler: object) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        self.sock, self.selector, self.handler = sock, selector, handler
        self.pending = bytearray()
        self.is_open = True
        selector.register(sock, selectors.EVENT_READ, handler)

    def send(self, *parts: bytes | memoryview, may_drop: bool = False) -> None:
        """Send a message, or buffer what cannot be sent at once; drop it if data are pending and `may_drop` is set."""
        if not self.is_open or (self.pending and may_drop):
            return
        sent = 0
        if not self.pending:
            try:
                sent = self.sock.sendmsg(parts)
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
            if sent == sum(map(len, parts)):
                return
            self.selector.modify(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self.handler)
            SLOW.add(self)
        self.pending += b"".join(parts)[sent:]
        if sum(len(connection.pending) for connection in SLOW) > MOST_PENDING:
            slowest = max(SLOW, key=lambda connection: len(connection.pending))
            LOG.warning("a client that left %d MB unread is disconnected", len(slowest.pending) // 10**6)
            slowest.close()

    def flush(self) -> None:
        """Send pending data as far as the socket takes it."""
        try:
            sent = self.sock.send(self.pending)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self.pending[:sent]
        if not self.pending:
            SLOW.discard(self)
            self.selector.modify(self.sock, selectors.EVENT_READ, self.handler)

    def received(self) -> bytes | None:
        """Return received data; b"" if there is none, None if the other side has closed."""
        try:
            return bytes(BUFFER[: self.sock.recv_into(BUFFER)]) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def close(self) -> None:
        """Close the socket; may be called twice."""
        if self.is_open:
            self.is_open = False
            SLOW.discard(self)
            self.pending = bytearray()
            self.selector.unregister(self.sock)
            self.sock.close()


SLOW: set[Connection] = set()
"""Connections that cannot send as fast as data arrive for them."""


def accepted(listener: socket.socket, selector: selectors.BaseSelector) -> socket.socket | None:
    """Accept a new connection on a listening socket; None if it was closed again or there are too many."""
    try:
        sock, _ = listener.accept()
    except OSError as error:
        LOG.warning("a client is not accepted: %s", error)
        return None
    if len(selector.get_map()) <= MOST_CONNECTIONS:
        return sock
    LOG.warning("a client is turned away: %d are connected", MOST_CONNECTIONS)
    sock.close()
    return None
