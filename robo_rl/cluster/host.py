"""Run an object in another process: its methods take and return bytes, so that nothing is pickled.

The object is created there as `Class(setup)`. A reply is the bytes that a method returned, or the prefix ERROR followed by an
error. No other reply has this prefix, so that replies are passed on without a copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import Any

from robo_rl import errors
from robo_rl.errors import ClusterUnavailable, RoboRLError, WorkerFailed

ERROR = b"\0robo-rl error\0"
MADE = b"made"
"""Content of the reply to a call without a method."""
Make = Callable[[bytes], Any]


class Host:
    """Runs one object on behalf of a caller in another process: calls its methods, packs results and errors.

    The object is created at the first call. An error becomes a reply (ERROR and its text) and is not raised.
    """

    def __init__(self, kind: str | Make, setup: bytes, here: str = "", robo_rl: str = "") -> None:
        """Store how to create the object.

        Args:
            kind: Class of the object, as "module:Class" or as the class.
            setup: Argument of the class.
            here: Working folder of the caller, so that relative paths mean the same.
            robo_rl: Version of the package in the caller; a different version here is an error. "" for no check.
        """
        self._kind, self._setup, self._here, self._version = kind, setup, here, robo_rl
        self._object: Any = None

    def call(self, method: str, *contents: bytes) -> bytes:
        """Call a method of the object, and return its result, or ERROR with the error; method "" only creates the object."""
        try:
            if self._object is None:
                self._object = self._made()
            content: bytes = getattr(self._object, method)(*contents) if method else MADE
            return content
        except RoboRLError as error:
            return ERROR + json.dumps([type(error).__name__, str(error)]).encode()
        except Exception:
            traceback.print_exc()
            return ERROR + json.dumps(["", traceback.format_exc()]).encode()

    def _made(self) -> Any:
        with suppress(OSError):  # another machine need not have the folder
            os.chdir(self._here or ".")
        if (there := version("robo-rl")) != (self._version or there):
            raise ClusterUnavailable(
                "A node has another robo-rl.", got=there, allowed=self._version, fix="install the same on every node"
            )
        return (resolve_name(self._kind) if isinstance(self._kind, str) else self._kind)(self._setup)


def made_of(kind: str, setup: bytes) -> tuple[str, bytes, str, str]:
    """Return the arguments of `Host` for an object of class `kind` that callers in this process use.

    They are the class name, the setup, the current folder and the version of robo-rl.
    """
    return kind, setup, os.getcwd(), version("robo-rl")


def error_of(reply: bytes) -> tuple[str, str] | None:
    """Return (class name, text) of the error in a reply, or None; the name is "" unless the error is a RoboRLError."""
    if not reply.startswith(ERROR):
        return None
    kind, words = json.loads(reply.removeprefix(ERROR))
    return kind, words


def content_of(name: str, reply: bytes) -> bytes:
    """Return the content of a reply, or raise the error in it.

    Args:
        name: Name of the worker, for the message.
        reply: Value of `Host.call`.

    Raises:
        RoboRLError: The error of the object, in its own class.
        WorkerFailed: The object raised another error.
    """
    if (refused := error_of(reply)) is None:
        return reply
    kind, words = refused
    found = getattr(errors, kind, None) if kind else None
    if found is None:
        raise WorkerFailed(f"{name} failed.", got=words)
    error: RoboRLError = found.__new__(found)
    error.args = (words,)
    raise error


def serve(connection: Connection, make: Make) -> None:
    """Run an object for the process at the other end of a connection; this process ends when that process ends.

    The first message is the setup. Each call is a message "METHOD COUNT", followed by COUNT messages with the arguments.
    """
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    host = Host(make, messages.get())
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            method, count = messages.get().decode().split(" ")
            connection.send_bytes(host.call(method, *(messages.get() for _ in range(int(count)))))


def _receive(connection: Connection, messages: queue.SimpleQueue[bytes]) -> None:
    """Receive messages in a thread, so that a busy object blocks no caller, and exit when the caller ends."""
    try:
        while True:
            messages.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # the result has no reader any more
