"""Who commands a robot: one owner at a time, for as long as it is heard of."""

from __future__ import annotations

import secrets
import threading
import time

from robo_rl.errors import RobotBusy

LASTS = 5.0
"""[s] of wall time for which a lease lasts without a word from its owner."""


class Lease:
    """At most one at a time. Its owner may take it anew, which ends the older one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token = self._owner = ""
        self._until = 0.0

    @property
    def owner(self) -> str:
        """Name of the owner, "" while there is none."""
        return self._owner if time.monotonic() < self._until else ""

    def take(self, owner: str) -> str:
        """Returns a token; raises RobotBusy with the name and the end of another owner's lease."""
        with self._lock:
            if self.owner not in ("", owner):
                raise RobotBusy(
                    "Another process holds the robot.",
                    got=f"{self.owner}, for {self._until - time.monotonic():.1f} s more unless it is heard of again",
                    allowed="one at a time",
                    fix="end it, or wait",
                )
            self._token, self._owner = secrets.token_hex(8), owner
            self._until = time.monotonic() + LASTS
            return self._token

    def require(self, token: str) -> None:
        """Renews the lease of a token; raises RobotBusy where it is not valid (any more)."""
        with self._lock:
            if not token or token != self._token or time.monotonic() >= self._until:
                raise RobotBusy("The lease of the robot is over.", got=self.owner or "no owner", fix="take it anew: connect()")
            self._until = time.monotonic() + LASTS

    def release(self, token: str) -> None:
        """Ends the lease of a token, if it is valid."""
        with self._lock:
            if token == self._token:
                self._token, self._until = "", 0.0
