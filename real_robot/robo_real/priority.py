"""Real-time scheduling of the threads that control a robot; on a loaded machine ordinary threads wait too long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

PRIORITY = 10
"""priority in the real-time class, far below the system's own threads"""


def request_realtime() -> bool:
    """Request real-time priority for this thread, and for the threads that it starts later.

    Linux grants this to root, and to others within the limit of `ulimit -r`.

    Returns:
        True if the system granted the priority.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except (AttributeError, OSError):  # another system, or not allowed
        return False
    return True


def drop_realtime() -> None:
    """Return this thread to ordinary scheduling, for work such as rendering that must not delay the control of the arm."""
    if hasattr(os, "sched_setscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def realtime_priority() -> Iterator[bool]:
    """Give this thread real-time priority inside the context; yields True if the system granted the priority."""
    granted = request_realtime()
    try:
        yield granted
    finally:
        drop_realtime()
