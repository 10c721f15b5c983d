"""Options for the address of a CARLA server, in commands that make an environment; its arguments `host` and `port`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

LOCAL = "127.0.0.1"


class NamesServer(Protocol):
    """Options of a command that can use a CARLA server that is running already."""

    @property
    def carla_host(self) -> str:
        """Host of the server; "" if none is given, which means this machine if a port is given."""

    @property
    def carla_port(self) -> tuple[int, ...]:
        """Ports, one for each server and so for each environment at once; empty for CARLA's default port."""


def with_server(arguments: Mapping[str, Any], command: NamesServer) -> dict[str, Any]:
    """Return the arguments of an environment, with `host` and `port` added if a command names a server."""
    named: dict[str, Any] = {}
    if command.carla_host or command.carla_port:
        named["host"] = command.carla_host or LOCAL
    if command.carla_port:
        named["port"] = list(command.carla_port) if len(command.carla_port) > 1 else command.carla_port[0]
    return {**arguments, **named}
