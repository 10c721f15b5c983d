"""One socket that never blocks: what cannot be sent at once is sent when there is room."""

from __future__ import annotations

import selectors
import socket

MOST_PENDING = 256 * 1024 * 1024
"""[bytes] after which a reader that does not read is given up."""
ROOM = 4 * 1024 * 1024
"""[bytes] asked of the kernel for each direction, so that a picture is one call."""
BUFFER = memoryview(bytearray(1 << 18))
"""What all connections read into, one after the other."""


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

    def send(self, data: bytes, *, may_drop: bool = False) -> None:
        """Sends a message, or leaves it out where the last one is still under way and it may be dropped."""
        if not self.is_open or (self.pending and may_drop):
            return
        if not self.pending:
            try:
                sent = self.sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(data):
                return
            data = data[sent:]
            self.selector.modify(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self.handler)
        self.pending += data
        if len(self.pending) > MOST_PENDING:
            self.close()

    def flush(self) -> None:
        """Sends what is pending, as far as there is room."""
        try:
            sent = self.sock.send(self.pending)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self.pending[:sent]
        if not self.pending:
            self.selector.modify(self.sock, selectors.EVENT_READ, self.handler)

    def received(self) -> bytes | None:
        """Returns what has arrived; b"" where nothing has, None where the other side is gone."""
        try:
            return bytes(BUFFER[: self.sock.recv_into(BUFFER)]) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def close(self) -> None:
        """Closes the socket; twice is no error."""
        if self.is_open:
            self.is_open = False
            self.selector.unregister(self.sock)
            self.sock.close()
