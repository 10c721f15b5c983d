"""Stop a training without losing a step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what `kill`, job schedulers and containers send first


@contextmanager
def gentle_interruption(request_stop: Callable[[], None]) -> Iterator[None]:
    """Turns the first Ctrl-C or SIGTERM inside the block into a request; the second one acts at once, as it always does."""
    usual = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        restore()
        request_stop()

    for number in SIGNALS:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
