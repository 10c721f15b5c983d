"""Real-time scheduling of the threads that control a robot; on a loaded machine ordinary threads wait too long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

PRIORITY = 10
"""priority in the real-time class, far below the system's own threads"""


def request_realtime() -> bool:
    """Give this thread, and those it starts later, real-time priority; return whether the system granted it.

    Linux grants it to root and within the limit of `ulimit -r`.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except (AttributeError, OSError):  # another system, or not allowed
        return False
    return True


def drop_realtime() -> None:
    """Return this thread to ordinary scheduling, as for one that renders."""
    if hasattr(os, "sched_setscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def realtime_priority() -> Iterator[bool]:
    """Context with real-time priority; yields whether the system granted it."""
    granted = request_realtime()
    try:
        yield granted
    finally:
        drop_realtime()
