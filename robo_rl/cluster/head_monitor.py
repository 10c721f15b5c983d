"""Monitor of a cluster's head, in a thread; Ray itself would end the process a minute after the head is lost."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Self

from robo_rl.cluster.preflight import CONNECT_TIMEOUT

POLL_PERIOD = 5.0
"""[s] between two checks."""
LOSS_TIMEOUT = 30.0
"""[s] without an answer after which the head counts as lost; a head that refuses connections is lost at once."""
LEASE = 8.0
"""[s] without an answer after which a worker with an exclusive resource ends; less than the 15 s after which a cluster counts a
node as dead (five times 3 s) and starts another worker elsewhere."""


class HeadMonitor:
    """Thread that checks in regular intervals whether a cluster's head still answers; used as a context manager."""

    def __init__(self, address: str) -> None:
        """Prepare the monitor of the head at `address`, HOST:PORT."""
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.gone: OSError | None = None
        """Reason of its loss; None while it answers."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        self.gone = _loss(self._address, self._over, POLL_PERIOD, LOSS_TIMEOUT)


def exit_without_head(address: str) -> None:
    """End this process, a worker, at once when it cannot reach the head for LEASE seconds; returns immediately."""

    def watch() -> None:
        _loss(address, threading.Event(), LEASE / 4, LEASE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _loss(address: str, over: threading.Event, look: float, cut: float) -> OSError | None:
    """Return the reason as soon as the head counts as lost; None when `over` is set."""
    host, _, port = address.rpartition(":")
    seen = time.monotonic()
    while not over.wait(look):
        try:
            socket.create_connection((host, int(port)), min(look, CONNECT_TIMEOUT)).close()
            seen = time.monotonic()
        except OSError as error:
            if isinstance(error, ConnectionRefusedError) or time.monotonic() - seen > cut:
                return error
    return None
