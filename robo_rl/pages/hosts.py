"""Host names under which a server of this machine may be addressed.

A page of another site can point its own name at this machine (DNS rebinding); its requests then carry that name.
"""

from __future__ import annotations

import ipaddress
import re
import socket

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
