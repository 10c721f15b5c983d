"""Options that name a CARLA server, for commands that make an environment; they are its arguments `host` and `port`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

LOCAL = "127.0.0.1"


class NamesServer(Protocol):
    """A command with these options."""

    @property
    def carla_host(self) -> str:
        """Host of the server; "" if none is named, this machine if only a port is."""

    @property
    def carla_port(self) -> tuple[int, ...]:
        """Its ports, one for each environment at once; empty for CARLA's own."""


def with_server(arguments: Mapping[str, Any], command: NamesServer) -> dict[str, Any]:
    """Return arguments of an environment with those of the server that a command names."""
    named: dict[str, Any] = {}
    if command.carla_host or command.carla_port:
        named["host"] = command.carla_host or LOCAL
    if command.carla_port:
        named["port"] = list(command.carla_port) if len(command.carla_port) > 1 else command.carla_port[0]
    return {**arguments, **named}
