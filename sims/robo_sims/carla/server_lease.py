"""Leases of CARLA servers within this process: one session per server, because a session sets the clock of the world.

Training and evaluation alternate on one server: a new episode takes the server with the oldest lease and cuts the episode
running there. Environments that step at the same time need one server each.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from robo_rl.errors import InvalidSetting

Server = tuple[str, int]


class LeaseHolder(Protocol):
    """Holds a server until the lease is revoked."""

    @property
    def is_open(self) -> bool:
        """True while the lease is valid."""

    @property
    def has_stepped(self) -> bool:
        """True after the first step."""

    def revoke(self) -> None:
        """End the lease: no further calls to the server."""


_HELD: dict[Server, weakref.ref[LeaseHolder]] = {}
"""In the order of acquisition, the oldest first."""


def acquire_lease(requester: LeaseHolder, host: str, ports: Sequence[int]) -> int:
    """Return the port of the leased server; raises InvalidSetting for more environments than servers."""
    holders = {port: _holder((host, port)) for port in ports}
    port = next((port for port, holder in holders.items() if holder in (None, requester)), None)
    if port is None:
        port = next(each for at, each in _HELD if at == host and each in ports)
        holder = holders[port]
        assert holder is not None
        if not holder.has_stepped:  # two environments would take it from each other forever, without a step
            raise InvalidSetting(
                "More environments drive at once than there are servers.",
                got=f"{host}, ports {list(ports)}",
                allowed="a port for each environment",
                fix="name more of them (--carla-port 2000 2004), or train one environment (--learner.num-envs 1)",
            )
        holder.revoke()
    _HELD.pop((host, port), None)
    _HELD[host, port] = weakref.ref(requester)
    return port


def _holder(server: Server) -> LeaseHolder | None:
    holder = _HELD[server]() if server in _HELD else None
    return holder if holder is not None and holder.is_open else None
