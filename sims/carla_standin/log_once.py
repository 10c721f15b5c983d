"""Log sentences once each: clients do not wait for most answers, so errors would not reach them."""

from __future__ import annotations

import logging
import re

LOG = logging.getLogger(__name__)
MOST = 1000
"""Largest number of kinds of sentences that are remembered, since a client can invent any number of call names."""
_LOGGED: set[str] = set()


def log_once(sentence: str, *, kind: str | None = None) -> None:
    """Log a sentence unless one of its kind was logged before; sentences that differ only in numbers are one kind."""
    key = kind or re.sub(r"[-+.\d]+", "0", sentence)
    if key in _LOGGED or len(_LOGGED) >= MOST:
        return
    _LOGGED.add(key)
    LOG.warning("%s", sentence)
