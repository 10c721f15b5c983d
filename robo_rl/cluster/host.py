"""Object in another process; its methods take and return bytes, so that nothing is pickled.

The object is made there by `Class(setup)`. A reply is the bytes that a method returned, or the prefix ERROR followed by the
error. No other reply has this prefix, and so replies are passed on without a copy.
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
    """Runs one object for callers in another process.

    It makes the object at the first call. An error of the object becomes a reply (ERROR and its text), and is not raised.
    """

    def __init__(self, kind: str | Make, setup: bytes, here: str = "", robo_rl: str = "") -> None:
        """Keep what makes the object.

        Args:
            kind: The object's class, as "module:Class" or itself.
            setup: Argument of the class.
            here: Working folder of the calling process, so that relative paths mean the same.
            robo_rl: The caller's version of the package; another one here is an error. Empty for no check.
        """
        self._kind, self._setup, self._here, self._version = kind, setup, here, robo_rl
        self._object: Any = None

    def call(self, method: str, *contents: bytes) -> bytes:
        """Call a method of the object, and return its reply or ERROR with the error; method "": only make the object."""
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
    """Return the arguments of a Host whose caller is this process."""
    return kind, setup, os.getcwd(), version("robo-rl")


def error_of(reply: bytes) -> tuple[str, str] | None:
    """Return (class name, text) of the error in a reply, or None; the name is "" for any error but a RoboRLError."""
    if not reply.startswith(ERROR):
        return None
    kind, words = json.loads(reply.removeprefix(ERROR))
    return kind, words


def content_of(name: str, reply: bytes) -> bytes:
    """Return the reply of a Host's object, or raise the error that it stands for.

    Args:
        name: Name of the worker, for the message.
        reply: What `Host.call` returned.

    Raises:
        RoboRLError: The error of the object, in its own class.
        WorkerFailed: The object raised an error of another kind.
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
    """Run an object for the process at the other end of a connection; this process ends when that one does.

    Messages: the setup; then for each call the method and the number of its contents, and these.
    """
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    host = Host(make, messages.get())
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            method, count = messages.get().decode().split(" ")
            connection.send_bytes(host.call(method, *(messages.get() for _ in range(int(count)))))


def _receive(connection: Connection, messages: queue.SimpleQueue[bytes]) -> None:
    """Receive in a thread: the caller never waits for a busy object, and no object outlives its caller."""
    try:
        while True:
            messages.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # the result has no reader any more
