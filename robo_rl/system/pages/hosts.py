"""Address at which a web server of this machine listens, and the host names that it accepts.

A page of another site can point its own host name at this machine (DNS rebinding); its requests then carry that name.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from robo_rl.errors import InvalidSetting

BACKLOG = 128
"""Largest number of connections that wait to be accepted."""
LOCAL = ("127.0.0.1", "localhost")


def is_own_host(host: str, address: str) -> bool:
    """Return True if a Host header names this machine.

    address: address that the server listens at. If other machines can reach it, any IP address and this machine's name are
    accepted, too.
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
    """Return a listening socket; raises InvalidSetting if the port is not available.

    port: 0 for any free port.
    """
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
