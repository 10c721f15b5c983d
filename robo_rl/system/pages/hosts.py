"""Address of a server of this machine, and host names that it accepts.

A page of another site can point its own name at this machine (DNS rebinding); its requests then carry that name.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from robo_rl.errors import InvalidSetting

BACKLOG = 128
"""Connections that wait to be accepted."""
LOCAL = ("127.0.0.1", "localhost")


def is_own_host(host: str, address: str) -> bool:
    """Return whether a Host header means this machine.

    address: listened at. One that other machines reach may also be named by any number, or by this machine's name.
    """
    name = re.sub(r":[0-9]{1,5}$", "", host).lower()
    if name in LOCAL or name == address.lower():
        return True
    if address in LOCAL:
        return False
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        own = socket.gethostname().lower()
        return name in (own, f"{own.partition('.')[0]}.local")
    return True


def listener_at(address: str, port: int) -> socket.socket:
    """Return a socket that listens; port: 0 for any free one. Raises InvalidSetting if the port cannot be had."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InvalidSetting(
            f"Port {port} of {address} cannot be used.",
            got=error,
            allowed="a free port, 1024 to 65535",
            fix="--port 0 takes any free one",
        ) from None
    return listener
