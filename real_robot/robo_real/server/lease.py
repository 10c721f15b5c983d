"""Lease of a robot: only one client at a time may move it. Each request with the lease's token renews the lease."""

from __future__ import annotations

import hmac
import secrets
import threading
import time

from robo_rl.errors import RobotBusy

LASTS = 5.0
"""[s] of wall time until an unused lease expires"""


class Lease:
    """Exclusive lease of one robot.

    The owner's name is public. A secret key, which the owner chooses, identifies the owner: only with the same key may a lease
    that is held be taken again, and the older token is then invalid.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token = self._owner = self._key = ""
        self._until = 0.0

    @property
    def owner(self) -> str:
        """Name of the owner; "" if the lease is free."""
        return self._owner if time.monotonic() < self._until else ""

    def take(self, owner: str, key: str = "") -> str:
        """Take the lease and return its token.

        Args:
            owner: Name of the owner, which others are shown.
            key: Secret of the owner; without one the lease can be taken again only once it has expired.

        Raises:
            RobotBusy: The lease is held under another key, or under none.
        """
        with self._lock:
            if self._is_held and not (key and _is_same(key, self._key)):
                raise RobotBusy(
                    "Another process holds the robot.",
                    got=f"{self.owner}, for {self._until - time.monotonic():.1f} s more unless it sends another request",
                    allowed="one at a time",
                    fix="end it, or wait",
                )
            self._token, self._owner, self._key = secrets.token_hex(8), owner, key
            self._until = time.monotonic() + LASTS
            return self._token

    def require(self, token: str) -> None:
        """Check a token and renew its lease; raises RobotBusy if the token is invalid or expired."""
        with self._lock:
            if not self._is_held or not _is_same(token, self._token):
                raise RobotBusy("The lease of the robot is over.", got=self.owner or "no owner", fix="take it again: connect()")
            self._until = time.monotonic() + LASTS

    def release(self, token: str) -> None:
        """End the lease if the token is valid; else do nothing."""
        with self._lock:
            if _is_same(token, self._token):
                self._token, self._until = "", 0.0

    @property
    def _is_held(self) -> bool:
        return bool(self._token) and time.monotonic() < self._until


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))
