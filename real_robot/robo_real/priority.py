"""Asks the system to run what steers a robot before all else: with other work about, an ordinary process waits for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

PRIORITY = 10
"""of the real-time class, far below that of the system's own"""


def run_first() -> bool:
    """Puts this thread, and what it begins later, before all ordinary ones; returns whether that was granted.

    Linux grants it to root and to whom `ulimit -r` allows it.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except (AttributeError, OSError):  # another system, or not allowed
        return False
    return True


def run_as_others() -> None:
    """Undoes it for this thread, such as for one that draws."""
    if hasattr(os, "sched_setscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def running_first() -> Iterator[bool]:
    """Does it for a while; gives whether it was granted."""
    granted = run_first()
    try:
        yield granted
    finally:
        run_as_others()
