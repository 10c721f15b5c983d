"""Connects to a CARLA server, real or stand-in, or raises one clear error.

The client itself checks little: without a server every call times out, and a server of another version causes a segmentation
fault. Port and version are therefore checked before the client is created.
"""

from __future__ import annotations

import importlib
import socket
import time
from typing import Any

from robo_rl.errors import MissingExtra, ServerUnavailable

VERSION = "0.9.16"
STAND_IN = "stand-in"
"""Value of the environment's argument `host` that starts a stand-in server of its own, which CARLA's client then talks to."""
START = "start one with `robo-rl carla-server`, or CARLA's own"


def connect(host: str = "127.0.0.1", port: int = 2000, timeout: float = 10.0, *, worker_threads: int = 0) -> Any:
    """Return a `carla.Client` with this timeout [s].

    worker_threads: threads of the client for incoming data; 0 for one per core.

    Raises MissingExtra without the wheel; ServerUnavailable if nothing listens or answers, or if the version differs.
    """
    carla = client_package()
    found = server_version(host, port, timeout)
    if found != VERSION:
        raise ServerUnavailable(
            f"The CARLA server at {host}:{port} has another version than the client.",
            got=found,
            allowed=VERSION,
            fix=f"{START}; without host and port an environment starts a light stand-in",
        )
    client = carla.Client(host, port, worker_threads=worker_threads)
    client.set_timeout(timeout)
    return client


def server_version(host: str, port: int, timeout: float) -> str:
    """Return the version of a server; raises ServerUnavailable if there is no answer in time."""
    msgpack = importlib.import_module("msgpack")
    where = f"{host}:{port}"
    end = time.monotonic() + timeout
    try:
        with socket.create_connection((host, port), timeout) as sock:
            sock.sendall(msgpack.packb([0, 1, "version", [[False]]]))
            return _answer(sock, msgpack.Unpacker(max_buffer_size=65536), end)
    except TimeoutError:
        raise ServerUnavailable(
            f"The program that listens at {where} does not answer.", got=f"nothing in {timeout:g} s", fix=START
        ) from None
    except OSError as error:
        raise ServerUnavailable(f"No CARLA server listens at {where}.", got=error, fix=START) from None
    except (ValueError, msgpack.UnpackException, TypeError, IndexError, KeyError) as error:
        raise ServerUnavailable(f"The program that listens at {where} is no CARLA server.", got=error, fix=START) from None


def _answer(sock: socket.socket, unpacker: Any, end: float) -> str:
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        data = sock.recv(4096)
        if not data:
            raise ValueError("it hung up")
        unpacker.feed(data)
        for message in unpacker:
            return str(message[3][0][1])  # [reply, number, error, [[1, version]]]


def client_package() -> Any:
    """Return the client's package; raises MissingExtra."""
    try:
        importlib.import_module("msgpack")
        return importlib.import_module("carla")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Driving in CARLA (Linux x86-64 or Windows, Python 3.11 or 3.12)", error.name or "", "carla"
        ) from None
