"""The head of a cluster, looked at from a thread: Ray would wait for it, and end the process after a minute."""

from __future__ import annotations

import socket
import threading
import time
from typing import Self

from robo_rl.cluster.entrance import NOBODY

LOOK = 5.0
"""[s] between two looks."""
CUT = 30.0
"""[s] without a way to it until it counts as gone; one that refuses is gone at once."""


class Head:
    """Knows whether the head is there; to be used in a `with` block."""

    def __init__(self, address: str) -> None:
        """address: HOST:PORT."""
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.gone: OSError | None = None
        """Why it counts as gone; None while it is there."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        host, _, port = self._address.rpartition(":")
        seen = time.monotonic()
        while not self._over.wait(LOOK):
            try:
                socket.create_connection((host, int(port)), NOBODY).close()
                seen = time.monotonic()
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) or time.monotonic() - seen > CUT:
                    self.gone = error
                    return
