"""Signals that Python drops come again, until the block is left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from robo_app.jobs.interruption import insistent_interruption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_that_is_dropped_comes_again(number):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]
    rounds = 0
    with pytest.raises(KeyboardInterrupt), insistent_interruption(0.1):
        with suppress(KeyboardInterrupt):  # as a destructor does
            os.kill(os.getpid(), number)
            time.sleep(5.0)
        rounds += 1
        with suppress(KeyboardInterrupt):
            time.sleep(5.0)
        rounds += 1
        time.sleep(5.0)
    assert rounds == 2
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_without_a_signal_nothing_is_raised():
    with insistent_interruption(0.05):
        time.sleep(0.2)
