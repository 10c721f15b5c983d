"""Leases of named servers by links of this process: one at a time, because a link sets the clock of the world.

A training and its evaluation take turns on one server: whoever begins an episode takes the server that was taken longest ago,
and the episode that was under way there is cut. Environments that step at the same time need a server each.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from robo_rl.errors import InvalidSetting

Server = tuple[str, int]


class Claimant(Protocol):
    """Holds a server until another takes it."""

    @property
    def is_open(self) -> bool:
        """True while it holds the server."""

    @property
    def has_stepped(self) -> bool:
        """True once it took a step."""

    def give_up(self) -> None:
        """Asks the server nothing any more."""


_HELD: dict[Server, weakref.ref[Claimant]] = {}
"""In the order in which the servers were taken."""


def claim(claimant: Claimant, host: str, ports: Sequence[int]) -> int:
    """Returns the port that is the claimant's from now on; raises InvalidSetting for more environments than servers."""
    holders = {port: _holder((host, port)) for port in ports}
    port = next((port for port, holder in holders.items() if holder in (None, claimant)), None)
    if port is None:
        port = next(each for at, each in _HELD if at == host and each in ports)
        holder = holders[port]
        assert holder is not None
        if not holder.has_stepped:  # it would be taken back at once, and so on: no episode would ever get anywhere
            raise InvalidSetting(
                "More environments drive at once than there are servers.",
                got=f"{host}, ports {list(ports)}",
                allowed="a port for each environment",
                fix="name more of them (--carla-port 2000 2004), or train one environment (--learner.num-envs 1)",
            )
        holder.give_up()
    _HELD.pop((host, port), None)
    _HELD[host, port] = weakref.ref(claimant)
    return port


def _holder(server: Server) -> Claimant | None:
    holder = _HELD[server]() if server in _HELD else None
    return holder if holder is not None and holder.is_open else None
