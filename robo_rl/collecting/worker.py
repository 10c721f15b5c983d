"""The collector's end: answers one request after the other, whichever engine has started it."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Protocol

from robo_rl.checkpoints import packed, unpacked
from robo_rl.errors import RoboRLError, ServerUnavailable
from robo_rl.types import StateDict


class Collector(Protocol):
    """Acts in environments of its own, with parameters that it is sent."""

    def load_parameters(self, parameters: StateDict) -> None:
        """Acts with these from now on."""

    def handle(self, request: StateDict) -> StateDict:
        """Does what is asked, and returns what came of it."""


Make = Callable[[StateDict], Collector]
"""Makes a collector for a job, which says what it acts in and which of the collectors it is."""


def answer(collector: Collector, request: bytes, parameters: bytes) -> bytes:
    """Returns the packed answer; that of an error which another collector would meet, too, tells it.

    parameters: newer ones, empty where there are none. What may be over with another attempt, such as a simulator's server
    that is gone, is raised: whoever runs the collector ends it, and another one takes its place.
    """
    try:
        if parameters:
            collector.load_parameters(unpacked(parameters))
        return packed(collector.handle(unpacked(request)))
    except ServerUnavailable:
        raise
    except RoboRLError as error:
        return refusal(error)


def refusal(error: RoboRLError) -> bytes:
    """Returns the packed answer of a collector that cannot go on."""
    return packed({"error": str(error), "kind": type(error).__name__})


def serve(connection: Connection, make: Make) -> None:
    """Reads a job, then pairs of a request and parameters; ends this process as soon as the other end is gone."""
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, frames), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            collector = make(unpacked(frames.get()))
        except ServerUnavailable:
            raise
        except RoboRLError as error:
            frames.get()
            connection.send_bytes(refusal(error))
            return
        while True:
            connection.send_bytes(answer(collector, frames.get(), frames.get()))


def _listen(connection: Connection, frames: queue.SimpleQueue[bytes]) -> None:
    """In a thread of its own, so that whoever asks never waits for a collector that is busy, and none outlives who asked."""
    try:
        while True:
            frames.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # nobody needs what is being done
