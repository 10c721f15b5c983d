"""Sentences for users, each logged once: most calls are not waited for, so that no error could reach the client."""

from __future__ import annotations

import logging
import re

LOG = logging.getLogger(__name__)
MOST = 1000
"""Sentences that are remembered; a client can invent names of calls without end."""
_SAID: set[str] = set()


def say(sentence: str, *, kind: str | None = None) -> None:
    """Log a sentence, unless one of its kind was logged before; sentences that differ in numbers alone are one kind."""
    key = kind or re.sub(r"[-+.\d]+", "0", sentence)
    if key in _SAID or len(_SAID) >= MOST:
        return
    _SAID.add(key)
    LOG.warning("%s", sentence)
