"""Websockets of pages; their package is an extra, since few pages need them."""

from __future__ import annotations

import asyncio
from typing import Any

from typing_extensions import override

from robo_rl.errors import optional
from robo_rl.system.pages.connections import Connections, Rank

with optional("A page with a websocket", "websockets", "console"):
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class Websocket(WebSocketsSansIOProtocol):
    """A websocket of a page, which counts among the server's open connections."""

    def __init__(self, open_ones: Connections, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._open_ones = open_ones

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open_ones.rank(self.transport, Rank.IDLE)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._open_ones.remove(self.transport)
