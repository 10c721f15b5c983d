"""Sockets of the stand-in."""

import contextlib
import errno
import os
import pickle
import socket
from pathlib import Path

FOLDER = os.environ.get("ROS_STANDIN_BUS", "")
_count = 0


class Listener:
    """Receives the messages of a topic; keeps the newest `depth`."""

    def __init__(self, topic, depth):
        global _count  # noqa: PLW0603
        _count += 1
        self.path = f"{FOLDER}/{mangled(topic)}@{os.getpid()}-{_count}"
        self.depth = depth
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def take(self):
        found = []
        with contextlib.suppress(BlockingIOError):
            while len(found) < 1000:
                found.append(self.socket.recv(1 << 20))
        return [pickle.loads(message) for message in found[-self.depth :]]  # noqa: S301 (our own)

    def close(self):
        self.socket.close()
        Path(self.path).unlink(missing_ok=True)


class Speaker:
    def __init__(self, topic):
        self.topic = mangled(topic)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.socket.setblocking(False)

    def say(self, message):
        content = pickle.dumps(message)
        for path in self.listeners():
            with contextlib.suppress(OSError):
                self.socket.sendto(content, path)

    def listeners(self):
        return [str(path) for path in Path(FOLDER).glob(f"{self.topic}@*") if self._is_alive(str(path))]

    def _is_alive(self, path):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            probe.connect(path)
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
        finally:
            probe.close()
        return True


def mangled(topic):
    return ("/" + topic.lstrip("/")).replace("/", "%")
